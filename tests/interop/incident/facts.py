"""Measured facts of an incident: availability, losses, and the log of each dead broker."""

import dataclasses
from pathlib import Path
from typing import NamedTuple

from .disk import End
from .prober import Gap
from .writers import Acknowledged


class Kill(NamedTuple):
    """SIGKILL of a broker between two times, seconds since 1970; its logs end there."""

    broker: int
    before: float
    after: float
    ends: dict[str, End]


class Pause(NamedTuple):
    """SIGSTOP of a broker between the first two times, and SIGCONT between the others."""

    broker: int
    before: float
    after: float
    resumed_before: float
    resumed_after: float


class Planned(NamedTuple):
    """A planned movement of leaders, between two times."""

    what: str
    begin: float
    end: float


class Cut(NamedTuple):
    """Log of a killed broker in one partition.

    Attributes:
        epoch: of its last record.
        log_end: the offset after it.
        kept: the offset from which histories diverge.
    """

    partition: str
    broker: int
    epoch: int
    log_end: int
    kept: int

    @property
    def tail(self) -> int:
        """Return how many of its records are lost."""
        return max(0, self.log_end - self.kept)


class Lost(NamedTuple):
    """A record that was acknowledged and is lost."""

    acks: str
    record: Acknowledged


@dataclasses.dataclass(frozen=True, slots=True)
class Facts:
    """All facts of one incident.

    Attributes:
        logs: the folder of the brokers' logs.
        zone: time zone of the logs.
        gaps: when a partition was unavailable, for GAP_S or more.
        cuts: for each kill and each log of that broker.
        begins: for each partition, the first offsets of the epochs that have records.
        unclean: partitions with an unclean election, and their leaders.
        committed: for these, the number of lost records below the high watermark of the old leader.
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

    def was_planned(self, time_s: float, slack_s: float) -> bool:
        """Return whether a planned movement of leaders happened at that time."""
        return any(change.begin - slack_s <= time_s <= change.end + slack_s for change in self.planned)
