"""Progress reports of Spark jobs: the name of the current step, completed tasks and known tasks."""

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kactl.runtime.progress import ProgressCallback as ProgressCallback
from kactl.runtime.progress import no_progress as no_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EVERY_S: Final = 0.5
_ENDS_S: Final = 5.0


class ConcurrentSteps:
    """Concurrent steps, reported as one: their names, and the sums of their tasks."""

    def __init__(self, on_progress: ProgressCallback) -> None:
        self._on_progress = on_progress
        self._steps: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def step(self, spark: "SparkSession", name: str) -> Iterator[None]:
        """Report one step while the body runs. Each step runs in its own thread."""
        if self._on_progress is no_progress:
            yield
            return
        try:
            with step(spark, name, self._hear):
                yield
        finally:
            with self._lock:
                self._steps.pop(name, None)

    def _hear(self, name: str, done: int, total: int) -> None:
        with self._lock:
            self._steps[name] = (done, total)
            done, total = (sum(column) for column in zip(*self._steps.values(), strict=True))
            self._on_progress(", ".join(self._steps), done, total)


@contextlib.contextmanager
def step(spark: "SparkSession", name: str, on_progress: ProgressCallback) -> Iterator[None]:
    """Report a step while the body runs: once at the beginning, then periodically from a background thread."""
    on_progress(name, 0, 0)
    if on_progress is no_progress:
        yield
        return
    context = spark.sparkContext
    context.setJobGroup(name, name)
    ended = threading.Event()
    thread = threading.Thread(
        target=_watch, args=(context, name, on_progress, ended), daemon=True, name="kactl-progress"
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_ENDS_S)


def _watch(context: object, name: str, on_progress: ProgressCallback, ended: threading.Event) -> None:
    tracker = context.statusTracker()  # type: ignore[attr-defined]  # a SparkContext, not imported for its name alone
    while not ended.wait(_EVERY_S):
        done = total = 0
        for job in tracker.getJobIdsForGroup(name):
            info = tracker.getJobInfo(job)
            for stage in [] if info is None else info.stageIds:
                progress = tracker.getStageInfo(stage)
                if progress is not None:
                    done, total = done + progress.numCompletedTasks, total + progress.numTasks
        on_progress(name, done, total)
