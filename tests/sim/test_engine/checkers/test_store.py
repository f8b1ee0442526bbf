"""INV-08 over hand-written histories."""

from typing import Any

import pytest

from tests.sim.engine.checkers import Store

from .stories import Story


def story() -> Story:
    """Three commits of two keys each; the second is answered."""
    one = Story(Store())
    for number in (1, 2, 3):
        one.commit({"a": {"n": number}, "b": {"n": number}})
    one.record("store.answered", txn=2, client="controller 100")
    return one


def both(number: int) -> dict[str, Any]:
    return {"a": {"n": number}, "b": {"n": number}}


@pytest.mark.parametrize("number", [2, 3])
def test_a_prefix_with_all_answered_commits_is_legal(number: int) -> None:
    one = story()
    one.record("store.reopened", content=both(number))
    one.commit({"b": None})
    one.record("store.answered", txn=4, client="controller 100")
    one.record("store.reopened", content={"a": {"n": number}})

    assert one.found == []


def test_a_commit_of_the_part_that_was_lost_is_not_expected_later() -> None:
    one = story()
    one.record("store.reopened", content=both(2))
    one.record("store.reopened", content=both(3))

    assert one.found == ["INV-08"]


@pytest.mark.parametrize(
    "content", [both(1), both(2) | {"a": {"n": 3}}, {}, both(3) | {"c": {}}], ids=["lost", "torn", "empty", "foreign"]
)
def test_any_other_content_breaks_inv_08(content: dict[str, Any]) -> None:
    one = story()
    one.record("store.reopened", content=content)

    assert one.found == ["INV-08"]
