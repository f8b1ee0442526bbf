"""Failure analysis for reports: the worst single brokers, pairs and racks at the end of the logs."""

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
    """Return the worst single brokers and pairs, and the worst racks if racks are known.

    Args:
        states, absences, deletions: tables of the jobs of these names.
        source: name of the source in the answer.
        at: time of the snapshot; None for the end of the logs, which is `end_us` if known.
        named: the table `timed`; see `of_logs`.
        min_isr: min.insync.replicas, which logs do not contain.
        racks: the rack of each broker.
        top: number of outcomes to explain per sweep.

    Raises:
        BadSnapshot: there is no partition whose replicas and ISR are known. Reports continue without advice.
    """
    assumed = Assumptions(min_isr=min_isr, racks=racks or {})
    ready = of_logs(states, absences, deletions, source, assumed, at=at, end_us=end_us, named=named)
    sweeps = [Kind.BROKERS, Kind.PAIRS, *([Kind.RACKS] if ready.engine.topology.racks else [])]
    try:
        return answer(ready, sweeps=sweeps, top=top, on_progress=on_progress)
    finally:
        ready.engine.close()
