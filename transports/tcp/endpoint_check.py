"""Check of the addresses that participants advertise, before a controller registers them."""

import weakref
from typing import Final, Protocol

import anyio

from kactl.errors import EndpointUnreachable
from kactl.messages.sessions import ParticipantLink, Register, SessionRequest, VerifyEndpoint
from kactl.runtime.logs import logger
from kactl.transports.base import ControllerPort

log = logger(__name__)

# Connections that one controller opens at a time: all participants may register again at the same moment.
_DIALS_MAX: Final = 32
# Of these, connections for one participant, whatever it advertises. A start does not wait for the check of an earlier
# start whose host does not answer.
DIALS_EACH_MAX: Final = 2


class Verify(Protocol):
    """Connects to an address and compares the participant there. Raises EndpointUnreachable."""

    async def __call__(self, broker: int, incarnation: bytes, host: str, port: int, /) -> None: ...


class EndpointCheck:
    """Checks of one controller instance.

    Args:
        required: whether a participant that is not found at its address is refused. If not, the failure is a warning.
    """

    def __init__(self, port: ControllerPort, verify: Verify, *, required: bool) -> None:
        self._port = port
        self._verify = verify
        self._required = required
        self._dials = anyio.CapacityLimiter(_DIALS_MAX)
        # By broker, while a check of it runs or waits.
        self._of_broker: weakref.WeakValueDictionary[int, anyio.Semaphore] = weakref.WeakValueDictionary()

    async def before(self, request: SessionRequest, link: ParticipantLink) -> None:
        """Check the address in a Register or a VerifyEndpoint.

        Raises:
            EndpointUnreachable: another program or none is there, and the check is required.
        """
        if not isinstance(request, Register | VerifyEndpoint) or request.peer is None:
            return
        if self._port.standby() is not None:
            return
        turns = self._of_broker.setdefault(link.broker, anyio.Semaphore(DIALS_EACH_MAX))
        try:
            async with turns, self._dials:
                await self._verify(link.broker, link.incarnation, request.peer.host, request.peer.port)
        except EndpointUnreachable as error:
            # Shown for a registration that exists: a session with the store may have begun without a controller.
            # The cause is for operators: it would tell the participant what else listens there.
            reason = str(error) if error.__cause__ is None else f"{error}: {error.__cause__}"
            self._port.endpoint_failed(link, reason)
            if self._required:
                log.warning("the registration of broker %d from %s is refused: %s", link.broker, link.address, reason)
                raise
            log.warning("broker %d is registered, but others cannot connect to it: %s", link.broker, reason)
        else:
            self._port.endpoint_failed(link, "")
