"""The broker id of a participant: the one that the program has chosen, or one that the active controller gives.

chosen ──▶ the same for ever
a name ──▶ the same for each process with that name, one at a time
neither ──▶ one for this process, which another one may have after its registration has ended
"""

import os
import socket
from collections.abc import Sequence

from kactl.decide.messages import arguments
from kactl.decide.messages.sessions import Identified, Identify, claim_of
from kactl.model import GIVEN_IDS, HOST_SEPARATOR, NO_BROKER, check_participant_name
from kactl.model.errors import BadRequest
from kactl.transports.base import ParticipantNetwork

from .sessions import session_error


class OwnId:
    """The id of one participant.

    Args:
        broker: None to be given one.
        name: None for a participant that needs no id of its own over restarts.

    Attributes:
        broker: NO_BROKER until one has been given. It may change with a registration if there is no name.

    Raises:
        BadRequest: both are given, or one is not valid.
    """

    def __init__(
        self, broker: int | None, name: str | None, network: ParticipantNetwork, controllers: Sequence[str]
    ) -> None:
        self.is_chosen = broker is not None
        self.broker = NO_BROKER if broker is None else arguments.whole(broker, "broker_id")
        self._given = "" if name is None else arguments.text(name, "name")
        self._network = network
        self._controllers = controllers
        if broker is not None:
            if self.broker < 0:
                raise BadRequest("broker_id", f"{broker} is negative; choose a number that no other broker has")
            if self.broker in GIVEN_IDS:
                raise BadRequest(
                    "broker_id",
                    f"{broker} is one of {GIVEN_IDS[0]} to {GIVEN_IDS[-1]}, which controllers give to participants "
                    "without an id: choose another one, or give name=",
                )
            if name is not None:
                raise BadRequest("name", f"{name!r} is given beside a broker id: give one of them")
        elif name is not None and (reason := check_participant_name(self._given)):
            raise BadRequest("name", reason)

    def __str__(self) -> str:
        return self.name or str(self.broker)

    @property
    def is_unnamed(self) -> bool:
        return not (self.is_chosen or self._given)

    @property
    def name(self) -> str:
        """The name in the registration; empty for an id that was chosen."""
        if self.is_chosen:
            return ""
        return self._given or f"{socket.gethostname()}{HOST_SEPARATOR}{os.getpid()}"

    @property
    def claim(self) -> str:
        """See `ParticipantPort`."""
        return claim_of(self.broker, self.name)

    async def find(self, start: bytes) -> int:
        """Returns the id for the next registration.

        Args:
            start: of its incarnation; see `Identify`.

        Raises:
            ControllerUnreachable, NotAuthorized, ProtocolMismatch: no controller has given one.
            StoreError: the controller could not store it, or none is left.
        """
        if not self.is_chosen:
            request = Identify(self.broker, self._given, start)
            answer = await self._network.identify(request, controllers=self._controllers)
            if not isinstance(answer, Identified):
                raise session_error(request, answer)
            self.broker = answer.broker
        return self.broker
