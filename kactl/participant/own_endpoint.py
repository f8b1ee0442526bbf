"""Verification of the address that a participant advertises, by the active controller, at the participant's request.

    unverified ──registration of the participant found there──▶ verified
         │ ▲                                                        │
         │ ├── the link is lost ──┐                                 │
         │ ├──────────────── the link is lost ──────────────────────┘
         └── not found ──▶ refused ┘

Before the registration a refusal is an error. In a session with the controller the registration itself is refused. A
participant with a session in the store registers unverified if there is no controller, as it has to lead on meanwhile.

Each link has the address verified once more: it may lead to another controller, on another host, which does not know
the results of earlier ones. A refusal takes nothing from a registration; the controller shows it.
"""

import logging
from typing import Final

from kactl.decide.messages.sessions import EndpointVerified, Refused, VerifyEndpoint
from kactl.model import Endpoint
from kactl.model.errors import ControllerUnreachable, EndpointUnreachable, KactlError
from kactl.runtime.clock import Clock
from kactl.runtime.conditions import Conditions
from kactl.runtime.logs import logger
from kactl.runtime.time_limit import limited

from .own_link import OwnLink
from .sessions import unreachable

log = logger(__name__)

# The controller takes no longer than its limits for connections and handshakes, which add up to half of this, unless
# a whole cluster registers at the same moment.
VERIFY_MS: Final = 10_000
# Pause after a verification that no controller has answered.
_RETRY_MS: Final = 500


class OwnEndpoint:
    """The address of one registration.

    Args:
        peer: the address; None if there is nothing to verify.
        link: of the registration.
        is_verified: the registration includes the verification.

    Attributes:
        is_verified: by the controller of the present link, or the last one.
    """

    def __init__(
        self,
        broker: int,
        incarnation: bytes,
        peer: Endpoint | None,
        link: OwnLink,
        clock: Clock,
        *,
        is_verified: bool = False,
    ) -> None:
        self.is_verified = is_verified or peer is None
        self._broker = broker
        self._incarnation = incarnation
        self._peer = peer
        self._link = link
        self._clock = clock

    async def verify(self) -> None:
        """Have the address verified.

        Raises:
            EndpointUnreachable: the controller has refused it.
            ControllerUnreachable: no controller answered, or a bug of the controller has ended the request.
        """
        if self._peer is None:
            return
        request = VerifyEndpoint(self._broker, self._incarnation, self._peer)
        late = ControllerUnreachable(
            f"no controller has verified {self._peer.host}:{self._peer.port} in {VERIFY_MS} ms"
        )
        answer = await limited(self._clock, VERIFY_MS, lambda: self._link.session(request), late)
        if isinstance(answer, Refused):
            if answer.error != EndpointUnreachable.__name__:
                raise ControllerUnreachable(answer.reason)
            raise unreachable(self._peer, answer.reason)
        if not isinstance(answer, EndpointVerified):
            raise ControllerUnreachable(f"the answer of the controller does not fit the request: {answer}")
        self.is_verified = True

    async def verify_if_linked(self) -> None:
        """Have the address verified before the registration, unless there is no controller.

        Raises:
            EndpointUnreachable: the controller has refused it.
        """
        if self.is_verified or not self._link.is_open:
            return
        try:
            await self.verify()
        except ControllerUnreachable as error:
            log.info("broker %d registers an address that is not verified: %s", self._broker, error)

    async def run(self) -> None:
        """Have the address of a registration verified by each controller that a link leads to, until cancelled."""
        conditions = Conditions(log, self._clock.monotonic_ms)
        while self._peer is not None:
            if self.is_verified:
                conditions.end("", "others can connect to broker %d", self._broker)
                await self._link.wait_lost()
                self.is_verified = False
            await self._link.wait_open()
            try:
                await self.verify()
            except EndpointUnreachable as error:
                text = "broker %d is registered, but others cannot connect to it: %s"
                conditions.add("", logging.WARNING, text, self._broker, error)
                await self._link.wait_lost()
            except KactlError as error:
                log.info("the address of broker %d could not be verified, trying again: %s", self._broker, error)
                await self._clock.sleep_ms(_RETRY_MS)
