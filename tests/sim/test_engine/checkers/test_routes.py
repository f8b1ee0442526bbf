"""INV-64 over hand-written histories."""

import pytest

from tests.sim.engine.checkers import Routes

from .stories import Story

NAME = "spectator 1"


def seen(one: Story, epoch: int, seq: int, *, age_ms: float = 0.0) -> None:
    one.record("routes.seen", NAME, controller_epoch=epoch, seq_number=seq, age_ms=age_ms)


def elected(one: Story, epoch: int) -> None:
    one.commit({"epoch": {"epoch": epoch}}, operation="contest")


def test_rising_versions_are_legal() -> None:
    one = Story(Routes())
    elected(one, 1)
    for epoch, seq in ((1, 3), (1, 3), (1, 4)):
        seen(one, epoch, seq)
    elected(one, 2)
    seen(one, 2, 0)

    assert one.found == []


@pytest.mark.parametrize(("epoch", "seq"), [(2, 3), (1, 9)])
def test_version_that_falls_breaks_inv_64(epoch: int, seq: int) -> None:
    one = Story(Routes())
    seen(one, 2, 4)
    seen(one, epoch, seq)

    assert one.found == ["INV-64"]


def test_another_process_begins_anew() -> None:
    one = Story(Routes())
    seen(one, 2, 4)
    one.record("node.start", NAME, incarnation=2)
    seen(one, 1, 1)

    assert one.found == []


@pytest.mark.parametrize(("age_ms", "found"), [(950.0, []), (800.0, ["INV-64"])])
def test_table_that_is_older_than_it_says_breaks_inv_64(age_ms: float, found: list[str]) -> None:
    one = Story(Routes())
    elected(one, 1)
    elected(one, 2)
    one.now_ms += 1_000
    seen(one, 1, 4, age_ms=age_ms)

    assert one.found == found
