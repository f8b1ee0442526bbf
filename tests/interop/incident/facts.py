"""What really was: who could be used when, what was lost, and how much a dead broker had."""

import dataclasses
from pathlib import Path
from typing import NamedTuple

from .disk import End
from .prober import Gap
from .writers import Acknowledged


class Kill(NamedTuple):
    """A broker was killed between two times, seconds since 1970; its logs ended there."""

    broker: int
    before: float
    after: float
    ends: dict[str, End]


class Pause(NamedTuple):
    """A broker was stopped by SIGSTOP between the first two times, and continued between the others."""

    broker: int
    before: float
    after: float
    resumed_before: float
    resumed_after: float


class Planned(NamedTuple):
    """Somebody wanted leaders to move, between two times."""

    what: str
    begin: float
    end: float


class Cut(NamedTuple):
    """What became of the log of a broker that was killed.

    Attributes:
        epoch: of its last record.
        log_end: the offset behind that.
        kept: from here on history differs.
    """

    partition: str
    broker: int
    epoch: int
    log_end: int
    kept: int

    @property
    def tail(self) -> int:
        """How many of its records are gone."""
        return max(0, self.log_end - self.kept)


class Lost(NamedTuple):
    """A record that was acknowledged and is gone."""

    acks: str
    record: Acknowledged


@dataclasses.dataclass(frozen=True, slots=True)
class Facts:
    """All of it.

    Attributes:
        logs: the folder of what the brokers wrote.
        zone: in which they told the time.
        gaps: when a partition could not be used, for GAP_S or more.
        cuts: for each kill and each log of that broker.
        begins: of each partition, the offsets with which epochs began that had records.
        unclean: partitions of which a leader was elected that had not been in sync, and which.
        committed: of those, how many records were lost of which the old leader had noted that they are committed.
    """

    logs: Path
    zone: str
    partitions: list[str]
    kills: list[Kill]
    planned: list[Planned]
    gaps: list[Gap]
    cuts: list[Cut]
    begins: dict[str, list[int]]
    lost: list[Lost]
    unclean: dict[str, int]
    committed: dict[str, int]
    acknowledged: int
    refused: list[str]
    pauses: list[Pause] = dataclasses.field(default_factory=list)

    def was_planned(self, at: float, slack_s: float) -> bool:
        """Whether somebody moved leaders on purpose at that time."""
        return any(each.begin - slack_s <= at <= each.end + slack_s for each in self.planned)
