"""The way from a broker to whoever is the controller.

Source: NodeToControllerChannelManager, which finds the controller anew before each try.
"""

from collections.abc import Callable
from typing import Any, Final

import anyio

from kactl.clock import Clock
from kactl.errors import ControllerUnreachable
from kactl.messages.admin import ControllerRequest
from kactl.model import NO_BROKER

from .hub import Hub

# Kafka's default (controller.socket.timeout.ms).
REQUEST_TIMEOUT_MS: Final = 30_000


class ToController:
    """Asks the controller that the broker has been told of last.

    Args:
        controller_id: who it is, at each call; NO_BROKER if nobody has been told of yet.
        timeout_ms: how long an answer may take.
    """

    def __init__(
        self,
        hub: Hub,
        *,
        controller_id: Callable[[], int],
        clock: Clock,
        timeout_ms: float = REQUEST_TIMEOUT_MS,
    ) -> None:
        self._hub = hub
        self._controller_id = controller_id
        self._clock = clock
        self._timeout_ms = timeout_ms

    async def ask(self, asked: ControllerRequest) -> Any:
        """Ask once; what the kind of `asked` says is the answer.

        Raises:
            ControllerUnreachable: nobody could be asked, or no answer came in time; what was asked for may have
                been done. Ask again after a pause: another controller may have been told of by then.
            KactlError: the controller has refused it; NotController if it is none any more.
        """
        controller = self._controller_id()
        if controller == NO_BROKER:
            raise ControllerUnreachable("nobody has said yet who it is")
        ask = self._hub.controller(controller)
        if ask is None:
            raise ControllerUnreachable(f"it is {controller}, and no controller of that id runs on this network")
        answer: Any = None
        failure: Exception | None = ControllerUnreachable(
            f"{controller} gave no answer within {self._timeout_ms:.0f} ms"
        )

        async def wait() -> None:
            nonlocal answer, failure
            try:
                answer, failure = await ask(asked), None
            except Exception as error:
                failure = error
            timed.cancel_scope.cancel()

        # The clock is handed in, so that the time limit is ours to keep and not the event loop's.
        async with anyio.create_task_group() as timed:
            timed.start_soon(wait)
            await self._clock.sleep_ms(self._timeout_ms)
            timed.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return answer
