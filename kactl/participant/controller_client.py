"""Client for requests from a broker to the active controller.

Source: NodeToControllerChannelManager, which looks the controller up before each attempt.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from kactl.decide.messages.admin import ControllerRequest
from kactl.model import NO_BROKER
from kactl.model.errors import ControllerUnreachable
from kactl.runtime.clock import Clock
from kactl.runtime.time_limit import limited

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
        late = ControllerUnreachable(f"{controller} sent no response within {self._timeout_ms:.0f} ms")
        return await limited(self._clock, self._timeout_ms, lambda: self._ask(request, controller=controller), late)
