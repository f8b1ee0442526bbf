"""A call that blocks the event loop is named in a warning while it blocks, with its stack."""

import logging
import threading

import anyio
import pytest

from kactl.participant.leases.loop_watch import watched

pytestmark = pytest.mark.anyio

PATIENCE_S = 60


class Reported(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.arrived = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
        self.arrived.set()


async def test_blocking_call_is_reported_while_it_blocks() -> None:
    reported = Reported()
    logging.getLogger("kactl.participant.leases.loop_watch").addHandler(reported)

    with watched(1, 1_000_000), watched(2, 1_000_000):
        await anyio.sleep(0.01)
        a_call_that_blocks(reported)
        await anyio.sleep(0.01)

    assert len(reported.texts) == 1
    assert "no lease of broker 1, 2 is renewed meanwhile" in reported.texts[0]
    assert "a_call_that_blocks" in reported.texts[0]


def a_call_that_blocks(reported: Reported) -> None:
    assert reported.arrived.wait(PATIENCE_S)


async def test_thread_ends_with_the_last_participant_of_the_loop() -> None:
    def watches() -> int:
        return sum(thread.name == "kactl loop watch" for thread in threading.enumerate())

    before = watches()
    with watched(1, 1_000_000):
        with watched(2, 1_000_000):
            assert watches() == before + 1
        assert watches() == before + 1

    assert watches() == before
