"""Entries of the corpus: valid files, and invalid ones with the advice in their errors."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.sim.engine import corpus, script
from tests.sim.engine.corpus import CorpusError, Entry, Found
from tests.sim.engine.script import Action, Script, ScriptError


def an_entry(**fields: Any) -> Entry:
    return Entry(
        **{
            "name": "INV-49-0001",
            "actions": [Action("kill", at_ms=30_000.0, args={"node": "broker 4"})],
            "sentence": "An election overtook the first UpdateMetadata of a registration.",
            "found": Found("b4f0964", "memory/model", "2026-11-22", 78.0, 112),
            "broke": "INV-49",
            "signature": "INV-49 req.accept",
            "mutant": "D1",
            "fixed": "b2bee56",
            **fields,
        }
    )


def test_entry_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = corpus.save(an_entry(), tmp_path)

    assert path.name == "INV-49-0001.json"
    assert corpus.load(path) == an_entry()
    assert corpus.load_all(tmp_path) == [an_entry()]


def test_entries_are_listed_by_name(tmp_path: Path) -> None:
    for name in ("INV-49-0002", "SCN-01-memory", "INV-49-0001"):
        corpus.save(an_entry(name=name), tmp_path)

    assert [entry.name for entry in corpus.load_all(tmp_path)] == ["INV-49-0001", "INV-49-0002", "SCN-01-memory"]


def test_script_of_an_entry_is_a_plain_script(tmp_path: Path) -> None:
    path = corpus.save(an_entry(), tmp_path)
    plain = tmp_path / "plain.json"
    plain.write_text(script.dumps(an_entry().script))

    assert type(an_entry().script) is Script
    assert corpus.load_script(path) == script.load(plain) == corpus.load_script(plain)


@pytest.mark.parametrize("text", ["{", '{"sentence": "x", "format": 1, "acts": []}', '{"format": 9}'])
def test_file_that_is_neither_script_nor_entry_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cut.json"
    path.write_text(text)

    with pytest.raises(ScriptError, match=r"cut\.json: "):
        corpus.load_script(path)


def test_names_are_counted_up(tmp_path: Path) -> None:
    assert corpus.next_name(tmp_path, "INV-49") == "INV-49-0001"
    corpus.save(an_entry(name="INV-49-0007"), tmp_path)
    corpus.save(an_entry(name="INV-19-0009"), tmp_path)

    assert corpus.next_name(tmp_path, "INV-49") == "INV-49-0008"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 99}, "script format 99, but this version reads format 1: make its runs equal again"),
        ({"color": "red"}, "not an entry of the corpus: .*unknown field `color`.*: restore the file, or remove it"),
        ({"actions": 3}, r"not an entry of the corpus: .*\$\.actions"),
        ({"name": "INV-49-0002"}, "the name 'INV-49-0002' is not that of the file"),
        ({"sentence": ""}, "there is no sentence: write what went wrong"),
        ({"expect": "INV-49 req.accept"}, "it expects 'INV-49 req.accept': an entry is fixed and expects to pass"),
        ({"found": None, "mutant": ""}, "there is no found, no mutant: complete the entry"),
        ({"broke": "INV-19"}, "name, `broke` 'INV-19' and signature 'INV-49 req.accept' differ"),
        ({"signature": "INV-19"}, "name, `broke` 'INV-49' and signature 'INV-19' differ"),
    ],
)
def test_damaged_entry_is_refused_with_reason_and_remedy(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    path = corpus.save(an_entry(), tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))

    with pytest.raises(CorpusError, match=rf"INV-49-0001\.json: {reason}"):
        corpus.load(path)


def test_scenario_needs_no_story_of_a_bug(tmp_path: Path) -> None:
    scenario = Entry(name="SCN-01-memory", sentence="A paused controller wakes up and writes.")

    assert corpus.load(corpus.save(scenario, tmp_path)) == scenario


def test_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "INV-49-0001.json"
    path.write_text("")

    with pytest.raises(CorpusError, match="not an entry of the corpus"):
        corpus.load(path)
