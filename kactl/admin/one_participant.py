"""A single participant in the place of a group."""

from kactl.model.errors import NotFound
from kactl.participant import Life, Participant


class OneParticipant:
    """The part of `Participants` that the API uses, for one participant."""

    def __init__(self, participant: Participant) -> None:
        self._participant = participant

    def __len__(self) -> int:
        return 1

    @property
    def ids(self) -> tuple[int, ...]:
        return (self._participant.id,)

    async def kill(self, broker: int) -> None:
        """See `Participants.kill`."""
        await self._only(broker).kill()

    async def restart(self, broker: int) -> None:
        """See `Participants.restart`."""
        await self._only(broker).restart()

    def _only(self, broker: int) -> Participant:
        if broker != self._participant.id or self._participant.life is Life.NEW:
            raise NotFound("participant", broker)
        return self._participant
