"""Client for requests from a broker to the active controller.

Source: NodeToControllerChannelManager, which looks the controller up before each attempt.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

import anyio

from kactl.decide.messages.admin import ControllerRequest
from kactl.model import NO_BROKER
from kactl.model.errors import ControllerUnreachable
from kactl.runtime.clock import Clock

# Kafka's default (controller.socket.timeout.ms).
REQUEST_TIMEOUT_MS: Final = 30_000


class AskController(Protocol):
    """Function that sends a request to one controller instance; see `ControlLink.ask`."""

    async def __call__(self, request: ControllerRequest, *, controller: int) -> Any: ...


class ControllerClient:
    """Sends requests to the controller from which the broker received metadata last.

    Args:
        controller_id: returns the controller's id; NO_BROKER if no metadata has been received yet.
        timeout_ms: the time limit for a response.
    """

    def __init__(
        self,
        ask: AskController,
        *,
        controller_id: Callable[[], int],
        clock: Clock,
        timeout_ms: float = REQUEST_TIMEOUT_MS,
    ) -> None:
        self._ask = ask
        self._controller_id = controller_id
        self._clock = clock
        self._timeout_ms = timeout_ms

    async def ask(self, request: ControllerRequest) -> Any:
        """Send a request once. Returns the response that the type of `request` documents.

        Raises:
            ControllerUnreachable: no controller could be reached, or no response arrived in time; the request may
                have been carried out. Retry after a pause: the metadata may name another controller by then.
            KactlError: the controller has rejected the request; NotController if it is not active any more.
        """
        controller = self._controller_id()
        if controller == NO_BROKER:
            raise ControllerUnreachable("its id is not known yet; wait for the first UpdateMetadata request")
        response: Any = None
        failure: Exception | None = ControllerUnreachable(
            f"{controller} sent no response within {self._timeout_ms:.0f} ms"
        )

        async def wait() -> None:
            nonlocal response, failure
            try:
                response, failure = await self._ask(request, controller=controller), None
            except Exception as error:
                failure = error
            timed.cancel_scope.cancel()

        # The clock is a parameter, so this class keeps the time limit itself instead of using the event loop's.
        async with anyio.create_task_group() as timed:
            timed.start_soon(wait)
            await self._clock.sleep_ms(self._timeout_ms)
            timed.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return response
