"""The blocks of docs/participants.md can be executed as they stand."""

import asyncio
import re
from typing import Any

import pytest

import kactl
from tests.support.tree import ROOT

GUIDE = (ROOT / "docs" / "participants.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def guide() -> dict[str, Any]:
    """The names that the blocks of the guide define, in the order of the page."""
    names: dict[str, Any] = {"__name__": "guide"}
    for block in re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL):
        exec(compile(block, "docs/participants.md", "exec"), names)
    return names


def test_blocks_of_the_guide_can_be_executed(guide: dict[str, Any]) -> None:
    workers = [name for name, value in guide.items() if isinstance(value, kactl.Worker)]

    assert workers == ["worker", "rooms", "several", "elsewhere"]


def test_test_of_the_guide_passes(guide: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(guide["test_shards_move"]())

    assert capsys.readouterr().out.startswith("[")
