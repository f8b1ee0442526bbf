"""Log records of simulated runs: node and time, and errors that end a run."""

import asyncio
import logging

import pytest

from kactl.model.errors import StoreUnavailable
from kactl.testing import sim
from kactl.testing.violations import Violation
from tests.sim.engine.log_records import recorded
from tests.testing.running import this_loop

log = logging.getLogger("kactl.example")


def fail(error: BaseException, *, cause: BaseException | None = None) -> None:
    try:
        raise error from cause
    except type(error):
        log.exception("event 7 was abandoned")


def test_records_have_time_and_node() -> None:
    async def work() -> None:
        await asyncio.sleep(1.5)
        log.info("broker %d answers", 3)

    async def main() -> None:
        loop = this_loop()
        await loop.start(loop.node("controller 100"), work())
        log.debug("not recorded")

    with recorded(level=logging.INFO) as records:
        sim.run(main)

    assert [(record.time_ms, record.node, record.text) for record in records] == [
        (1500.0, "controller 100", "broker 3 answers")
    ]


def test_error_that_nothing_explains_ends_the_run() -> None:
    async def main() -> None:
        fail(ZeroDivisionError("division by zero"))
        await asyncio.sleep(10)
        raise AssertionError("the run has not ended")

    with recorded(), pytest.raises(Violation, match="event 7 was abandoned: ZeroDivisionError") as caught:
        sim.run(main)

    assert caught.value.signature == "INV-51 log.ZeroDivisionError"
    assert caught.value.event is not None
    assert "test_log_records.py:" in caught.value.event.fields["error"]


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (StoreUnavailable("cut"), None),
        (RuntimeError("later"), StoreUnavailable("cut")),
        (BaseExceptionGroup("both", [StoreUnavailable("cut")]), None),
    ],
)
def test_error_that_a_fault_causes_is_no_violation(error: BaseException, cause: BaseException | None) -> None:
    async def main() -> str:
        fail(error, cause=cause)
        await asyncio.sleep(1)
        return "done"

    with recorded() as records:
        assert sim.run(main) == "done"

    assert [record.text for record in records] == ["event 7 was abandoned"]


def test_group_with_one_unexplained_error_ends_the_run() -> None:
    async def main() -> None:
        fail(BaseExceptionGroup("both", [StoreUnavailable("cut"), KeyError("x")]))
        await asyncio.sleep(1)

    with recorded(), pytest.raises(Violation):
        sim.run(main)


def test_loggers_are_restored() -> None:
    logger = logging.getLogger("kactl")
    before = (logger.level, logger.propagate, list(logger.handlers))

    with recorded(level=logging.DEBUG):
        log.error("outside a simulated run")

    assert (logger.level, logger.propagate, list(logger.handlers)) == before


def test_exceeded_limit_of_a_handler_is_no_violation() -> None:
    async def main() -> str:
        logging.getLogger("kactl.x").error("prepare has failed", exc_info=TimeoutError("has taken too long"))
        await asyncio.sleep(1)
        return "done"

    with recorded() as records:
        assert sim.run(main) == "done"

    assert [record.text for record in records] == ["prepare has failed"]
