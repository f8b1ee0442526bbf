"""Fencing tokens: they order the leaders of a partition for the resources that leaders write to."""

import dataclasses

from kactl.model import ZERO_ID


@dataclasses.dataclass(frozen=True, slots=True)
class FencingToken:
    """Token of a leadership, `leader.token`: higher for every later leadership of a partition of the same topic id.

    A resource that keeps the highest token which it has seen, and rejects lower ones, is safe against a leader that
    acts too late, whatever its clock shows. A leadership keeps its token when it resumes, and if the ISR changes; that
    of a shard gets a higher one when its hand-over has failed.

    Attributes:
        controller_epoch: of the controller that decided the leadership.
        leader_epoch: with which the leadership began, or its last hand-over failed. Changes of the ISR raise that of
            the partition.
        topic_id: 16 bytes; zero if the topic has no id. A topic that was deleted and created again has another id.
    """

    controller_epoch: int
    leader_epoch: int
    topic_id: bytes = ZERO_ID

    def __lt__(self, other: "FencingToken") -> bool:
        """Compare two tokens of one topic.

        Raises:
            ValueError: the tokens belong to different topics, whose epochs cannot be compared.
        """
        if not isinstance(other, FencingToken):
            return NotImplemented
        return self._key(other) < other._key(self)

    def __le__(self, other: "FencingToken") -> bool:
        if not isinstance(other, FencingToken):
            return NotImplemented
        return self._key(other) <= other._key(self)

    def _key(self, other: "FencingToken") -> tuple[int, int]:
        if self.topic_id != other.topic_id:
            raise ValueError(
                f"tokens {self} and {other} cannot be compared: they belong to the topics with the ids "
                f"{self.topic_id.hex()} and {other.topic_id.hex()}"
            )
        return self.controller_epoch, self.leader_epoch

    def as_int(self) -> int:
        """Returns one number below 2^63 with the same order, for resources that compare numbers."""
        return self.controller_epoch << 32 | self.leader_epoch

    def __str__(self) -> str:
        return f"{self.controller_epoch}.{self.leader_epoch}"
