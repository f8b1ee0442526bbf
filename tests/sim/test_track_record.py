"""docs/evidence/track-record.md is current, and has the required fields of every bug."""

import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.sim.engine import corpus
from tests.sim.engine.corpus import Entry, Found
from tests.support import track_record, tree

_BUG: Final = '[[bug]]\ninvariant = "INV-01"\nbroke = "x"\nhow = "y"\n'


def a_folder(tmp_path: Path, text: str) -> Path:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "track.toml").write_text(text)
    return tmp_path


def test_page_is_generated_from_its_sources() -> None:
    text = track_record.PAGE.read_text(encoding="utf-8")

    assert text == track_record.page(), "write it anew: python -m tests.support.track_record"


def test_commits_of_the_page_belong_to_the_history() -> None:
    named = {commit for bug in track_record.bugs() for commit in (bug.found, bug.fixed) if commit}
    tree.require_history()

    for commit in sorted(named):
        command = ["git", "merge-base", "--is-ancestor", commit, "HEAD"]
        done = subprocess.run(command, cwd=tree.ROOT, capture_output=True, check=False)
        assert done.returncode == 0, commit


def test_bug_of_the_corpus_is_part_of_the_page(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, f'{_BUG}found_by = "simulation"\nfixed = "1234567"\n')
    entry = Entry(
        name="INV-19-0001",
        sentence="Two leaders.",
        found=Found("abc1234", "memory/model", "2026-11-23", 7.0, 5),
        broke="INV-19",
        signature="INV-19 role.apply",
        mutant="MUT-02",
        fixed="7654321",
    )
    corpus.save(entry, folder / "corpus")

    told = track_record.bugs(folder)

    assert [(bug.invariant, bug.how, bug.cpu_s) for bug in told][1:] == [("INV-19", "seed 5, INV-19-0001", 7.0)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('found_by = "luck"', "was found by 'luck': choose one of simulation, exhaustive"),
        ('found_by = "user"', "was not found by simulation: write why_not_found and action"),
        ('found_by = "user"\ncolor = "red"', "unknown field `color`"),
    ],
)
def test_incomplete_bug_is_rejected(tmp_path: Path, line: str, reason: str) -> None:
    folder = a_folder(tmp_path, f"{_BUG}{line}\n")

    with pytest.raises(ValueError, match=reason):
        track_record.track(folder)
