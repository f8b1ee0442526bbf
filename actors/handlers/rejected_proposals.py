"""Selection of the rejected ISR proposals that are logged: a leader may repeat one twice a second, for as long as its
reason lasts.
"""

import dataclasses
from collections.abc import Sequence
from typing import Final

from kactl.model import TopicPartition
from kactl.model.errors import ErrorCode
from kactl.runtime.clock import Clock

REPEAT_MS: Final = 60_000


@dataclasses.dataclass(slots=True)
class _Repeated:
    logged_ms: float
    count: int = 0


class RejectedProposals:
    """Counts the rejections of each partition, by leader and error."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._repeated: dict[tuple[int, ErrorCode, TopicPartition], _Repeated] = {}
        self._pruned_ms = clock.monotonic_ms()

    def to_log(
        self, broker: int, error: ErrorCode, names: Sequence[TopicPartition]
    ) -> tuple[list[TopicPartition], int]:
        """Count a rejection of each partition. Returns those that were not logged within REPEAT_MS, and the number of
        their rejections since then, these included.
        """
        now_ms = self._clock.monotonic_ms()
        self._prune(now_ms)
        due, count = [], 0
        for name in names:
            known = self._repeated.setdefault((broker, error, name), _Repeated(now_ms - REPEAT_MS))
            known.count += 1
            if now_ms - known.logged_ms >= REPEAT_MS:
                due.append(name)
                count += known.count
                known.logged_ms, known.count = now_ms, 0
        return due, count

    def _prune(self, now_ms: float) -> None:
        """Forget, once per REPEAT_MS, what was not rejected again for as long."""
        if now_ms - self._pruned_ms < REPEAT_MS:
            return
        self._pruned_ms = now_ms
        oldest_ms = now_ms - 2 * REPEAT_MS
        self._repeated = {key: known for key, known in self._repeated.items() if known.logged_ms >= oldest_ms}
