"""Log of a replica without its records: runs of (leader epoch, end offset).

    epoch  1  1  1  3  3  7          runs (1, 3), (3, 5), (7, 6)
    offset 0  1  2  3  4  5

Runs determine everything that the controller can observe of a log: lag, divergence and truncation.
"""

from collections.abc import Sequence

NO_EPOCH = -1
Runs = Sequence[tuple[int, int]]


class ReplicaLog:
    """Log of one replica. Epochs and end offsets rise from run to run."""

    def __init__(self) -> None:
        self.runs: list[tuple[int, int]] = []

    @property
    def end(self) -> int:
        """The offset that the next record gets."""
        return self.runs[-1][1] if self.runs else 0

    @property
    def last_epoch(self) -> int:
        return self.runs[-1][0] if self.runs else NO_EPOCH

    def append(self, epoch: int, count: int) -> None:
        """Append records of one leader epoch, which is not lower than the last one."""
        if count:
            self.extend([(epoch, self.end + count)])

    def extend(self, runs: Runs) -> None:
        """Append runs that continue the log."""
        for epoch, end in runs:
            if end <= self.end:
                continue
            if self.runs and self.runs[-1][0] == epoch:
                self.runs.pop()
            self.runs.append((epoch, end))

    def after(self, offset: int) -> list[tuple[int, int]]:
        """Returns the runs of the records from an offset on."""
        return [run for run in self.runs if run[1] > offset]

    def end_of(self, epoch: int) -> tuple[int, int]:
        """Returns the highest epoch up to the given one, with its end offset; (NO_EPOCH, 0) if there is none."""
        return max((run for run in self.runs if run[0] <= epoch), default=(NO_EPOCH, 0))

    def truncate(self, offset: int) -> None:
        """Drop the records from an offset on."""
        kept: list[tuple[int, int]] = []
        start = 0
        for epoch, end in self.runs:
            if start < offset:
                kept.append((epoch, min(end, offset)))
            start = end
        self.runs = kept

    def truncate_to_epoch(self, epoch: int, offset: int) -> None:
        """Drop the records that the leader does not have: everything past its end offset of an epoch."""
        _, own_end = self.end_of(epoch)
        self.truncate(min(own_end, offset))
