"""Pauses of the machine are observed, and subtracted from the processor time of a step; other load is not."""

import multiprocessing
import os
import time
from collections.abc import Callable

import pytest

from tests.support.machine_pauses import LEAST_S, Span, Watch, unpaused_s, watching
from tests.support.processes import POLL_S

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can have real-time priorities")
PATIENCE_S = 30
PAUSE_S = 5 * LEAST_S


def _until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(POLL_S)


def _paused(watch: Watch) -> Span:
    """Stop the process for a time, as a pause of the machine does. Returns that time."""
    watch.process.pause()
    begin_s = time.monotonic()
    _until(lambda: time.monotonic() > begin_s + PAUSE_S)
    end_s = time.monotonic()
    watch.process.resume()
    return Span(begin_s, end_s)


@needs_root
def test_pause_is_observed_with_its_begin_and_end() -> None:
    with watching() as watch:
        # Once it has observed one pause, it has begun to watch.
        _until(lambda: bool(_paused(watch) and watch.pauses()))
        made = _paused(watch)

        # The machine may have other pauses before and after it.
        _until(lambda: unpaused_s(PAUSE_S, made, watch.pauses()) < PAUSE_S / 4)

        assert watch.pauses()[-1].end_s >= made.end_s


@needs_root
def test_load_is_no_pause() -> None:
    """More processes than processors, the watching process is delayed by none of them."""
    with watching() as watch:
        _until(lambda: bool(_paused(watch) and watch.pauses()))
        known, begin_s = len(watch.pauses()), time.monotonic()
        with multiprocessing.get_context("fork").Pool(24) as pool:
            pool.map(_burn, range(24))
        loaded_s = time.monotonic() - begin_s
        paused_s = sum(pause.end_s - pause.begin_s for pause in watch.pauses()[known:])

    # A process that has to wait for its turn would seem to be paused for most of this time.
    assert paused_s < loaded_s / 4


def _burn(_: int) -> None:
    end_s = time.process_time() + 0.2
    while time.process_time() < end_s:
        pass


@pytest.mark.parametrize(
    ("pauses", "left_s"),
    [
        ([], 3.0),
        ([Span(0, 10)], 3.0),
        ([Span(12, 13)], 2.0),
        ([Span(9, 11)], 2.0),
        ([Span(13, 20)], 2.0),
        ([Span(10.5, 11), Span(12, 12.5)], 2.0),
        ([Span(9, 20)], 0.0),
        ([Span(14, 20)], 3.0),
    ],
)
def test_pauses_in_a_step_are_no_work(pauses: list[Span], left_s: float) -> None:
    assert unpaused_s(3.0, Span(10, 14), pauses) == pytest.approx(left_s)
