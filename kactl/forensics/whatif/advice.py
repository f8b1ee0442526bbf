"""What a report asks for: which brokers, pairs and racks the cluster can spare least, as the logs end."""

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kactl.forensics.progress import ProgressCallback, no_progress

from .partitions import MIN_ISR, Assumptions
from .prepared_snapshot import of_logs
from .sweep import Answer, Kind
from .sweeps import answer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOP: Final = 3


def advise(
    states: "DataFrame",
    absences: "DataFrame",
    deletions: "DataFrame | None" = None,
    *,
    source: str = "the logs",
    at: datetime.datetime | None = None,
    end_us: int | None = None,
    named: "DataFrame | None" = None,
    min_isr: int = MIN_ISR,
    racks: Mapping[int, str] | None = None,
    top: int = TOP,
    on_progress: ProgressCallback = no_progress,
) -> Answer:
    """The worst single brokers and pairs, and the worst racks if they are known.

    Args:
        states, absences, deletions: tables of the jobs of these names.
        source: what the answer calls them.
        at: of what time; None for where the logs end, which is `end_us` if that is known.
        named: the table `timed`; see `of_logs`.
        min_isr: min.insync.replicas; logs do not have it.
        racks: the rack of each broker.
        top: how many of each sweep are told of.

    Raises:
        BadSnapshot: of no partition both replicas and ISR are known; a report goes on without advice then.
    """
    assumed = Assumptions(min_isr=min_isr, racks=racks or {})
    ready = of_logs(states, absences, deletions, source, assumed, at=at, end_us=end_us, named=named)
    sweeps = [Kind.BROKERS, Kind.PAIRS, *([Kind.RACKS] if ready.engine.topology.racks else [])]
    try:
        return answer(ready, sweeps=sweeps, top=top, on_progress=on_progress)
    finally:
        ready.engine.close()
