"""Log of recently written keys, for clients that keep a copy of the stored data: see `Store.changes`."""

from bisect import bisect_right
from typing import Final

# At some 150 bytes each; a failover of a very large cluster writes as many.
RECORDED_MAX: Final = 1 << 20


class WrittenKeys:
    """Topics and partitions that were written, by revision, as far back as they are kept."""

    def __init__(self, revision: int) -> None:
        self._complete_after = revision
        self._revisions: list[int] = []
        self._written: list[str | tuple[int, int]] = []

    def add(self, revision: int, written: str | tuple[int, int]) -> None:
        """Record the write of a topic, by name, or of a partition, by topic number and partition."""
        self._revisions.append(revision)
        self._written.append(written)
        if len(self._revisions) > RECORDED_MAX:
            # Half of it at a time: a deletion at the front moves the rest.
            half = RECORDED_MAX // 2
            self._complete_after = self._revisions[half - 1]
            del self._revisions[:half], self._written[:half]

    def forget(self, revision: int) -> None:
        """Discard everything: writes up to `revision` are unknown."""
        self._complete_after = revision
        self._revisions.clear()
        self._written.clear()

    def since(self, revision: int) -> list[str | tuple[int, int]] | None:
        """Returns what was written after a revision, some of it possibly twice; None if that is unknown."""
        if revision < self._complete_after:
            return None
        return self._written[bisect_right(self._revisions, revision) :]
