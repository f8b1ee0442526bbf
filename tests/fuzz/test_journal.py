"""A run of the fuzzer goes on where it was, and refuses the journal of another one."""

from pathlib import Path

import pytest

from . import campaign, runner
from .journal import Journal, JournalError, Part, Run, digest
from .runner import Figures
from .target import Target

RUN = Run(inputs=10, seed=1, decoders="d")
PART = Part("1/t/0", "t", Figures(10, 3, 0.5, 0.1, 7))


def test_finished_parts_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []
    target = Target("planted", lambda data: decoded.append(data), (), [b"seed"])
    monkeypatch.setattr(campaign, "_known", {"planted": target})
    monkeypatch.setattr(runner, "CHUNK", 1_000)
    whole = campaign.fuzz([target], 3_000, 1)
    journal, inputs = tmp_path / "journal", list(decoded)

    # The second part ends the first run.
    decoded.clear()
    run_part = campaign._run_task
    monkeypatch.setattr(campaign, "_run_task", lambda task: 1 / 0 if task[2].endswith("/1") else run_part(task))
    with pytest.raises(ZeroDivisionError):
        campaign.fuzz([target], 3_000, 1, journal=journal)
    monkeypatch.setattr(campaign, "_run_task", run_part)
    figures = campaign.fuzz([target], 3_000, 1, journal=journal)

    assert set(decoded) == set(inputs)
    assert len(decoded) == pytest.approx(len(inputs), abs=runner.BATCH)  # a batch that is measured is decoded again
    assert (figures["planted"].inputs, figures["planted"].accepted) == (3_000, whole["planted"].accepted)

    decoded.clear()
    assert campaign.fuzz([target], 3_000, 1, journal=journal) == figures
    assert not decoded


def test_line_of_a_killed_process_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    Journal(path, RUN).add(PART)
    content = path.read_bytes()
    for end in range(content.index(b"\n") + 1, len(content)):
        path.write_bytes(content[:end])
        journal = Journal(path, RUN)
        assert not journal.parts
        journal.add(PART)
        assert Journal(path, RUN).parts == {PART.seed: PART}


@pytest.mark.parametrize(
    "content", [b"text", b"text\n", b'{"inputs":10', b"{}\n", b'{"inputs":10,"seed":1,"decoders":"d"}\ntext\n{"']
)
def test_other_files_are_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes"
    path.write_bytes(content)

    with pytest.raises(JournalError, match=r"notes is no journal .* Name another file"):
        Journal(path, RUN)

    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "other",
    [
        Run(inputs=11, seed=1, decoders="d"),
        Run(inputs=10, seed=2, decoders="d"),
        Run(inputs=10, seed=1, decoders="e"),
    ],
)
def test_journal_of_another_run_is_refused(tmp_path: Path, other: Run) -> None:
    path = tmp_path / "journal"
    Journal(path, RUN).add(PART)

    with pytest.raises(JournalError, match="another run"):
        Journal(path, other)

    assert Journal(path, RUN).parts


def test_digest_differs_by_target_seed_and_number() -> None:
    target = Target("t", len, (), [b"a", b"b"])

    digests = {
        digest(targets)
        for targets in (
            [target],
            [target._replace(name="u")],
            [target._replace(rarity=2)],
            [target._replace(seeds=[b"ab"])],
            [target._replace(seeds=[b"a", b"c"])],
            [target, target],
        )
    }

    assert len(digests) == 6
    assert digest([target]) == digest([target])
