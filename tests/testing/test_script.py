"""Script files: valid and invalid ones."""

import json
from pathlib import Path

import pytest

from kactl.testing.script import Action, Script, ScriptError, dumps, load, loads


def a_script() -> Script:
    return Script(
        name="INV-49-0001",
        actions=[
            Action("kill", at_ms=30_000.0, args={"node": "broker 4", "restart_after_ms": 200}),
            Action("elect", at_ms=31_000.0, args={"partitions": ["t1-1"]}),
        ],
    )


def test_a_script_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(dumps(a_script()))
    assert load(path) == a_script()
    assert dumps(load(path)) == path.read_text()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"format": 99},
            r"damaged\.json: script format 99, but this version reads format 1: replay it with the version",
        ),
        ({"formats": 1}, "unknown field `formats`"),
        ({"actions": [{"do": "kill", "at": 3}]}, r"unknown field `at`.*\$\.actions\[0\]"),
        ({"actions": [{"at_ms": 3}]}, r"missing required field `do`"),
        ({"schedule": {"strategy": "best"}}, r"Invalid enum value 'best'.*\$\.schedule\.strategy"),
        ({"format": None}, "not a script"),
    ],
)
def test_a_damaged_script_is_refused_with_its_place(change: dict[str, object], reason: str) -> None:
    content = json.loads(dumps(a_script())) | change
    with pytest.raises(ScriptError, match=reason):
        loads(json.dumps(content), Script, name="damaged.json")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": 1', b"\xff\xfe", '{"name": "x"}'])
def test_text_that_is_not_a_script_is_refused(text: str | bytes) -> None:
    with pytest.raises(ScriptError, match=r"cut\.json: not a script: .*: restore the file, or remove it"):
        loads(text, Script, name="cut.json")
