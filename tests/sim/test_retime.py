"""The search near a script that misses its mutant."""

import itertools
import random
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.sim import retime
from tests.sim.engine import corpus, script
from tests.sim.engine.judging import judge

ORIGIN = script.load(retime.FOLDER / "smoke" / "MUT-39.json")


def story(one: script.Script) -> list[str]:
    return sorted(f"{action.do} {action.at_point} {action.args}" for action in one.actions)


def test_neighbours_keep_the_story_within_the_run() -> None:
    found = list(itertools.islice(retime.neighbours(ORIGIN, random.Random(1)), 200))

    assert found[0] == ORIGIN
    assert len({script.dumps(one) for one in found}) == 200
    for one in found:
        times = [action.at_ms for action in one.actions]
        assert story(one) == story(ORIGIN)
        assert times == sorted(times)
        assert times[0] >= 0
        assert times[-1] <= one.duration_ms
        assert replace(one, actions=[], schedule=ORIGIN.schedule) == replace(ORIGIN, actions=[])


@pytest.mark.slow
def test_script_whose_moment_has_moved_is_replaced(tmp_path: Path) -> None:
    """One that fails with its mutant, and passes without it, as the one that was recorded once."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    path = Path(shutil.copy(retime.FOLDER / "corpus" / "LIV-05-0011.json", folder))
    entry = corpus.load(path)
    last = entry.actions[-1]
    corpus.save(replace(entry, actions=[*entry.actions[:-1], replace(last, at_ms=last.at_ms + 8)]), folder)

    near = retime.find(path, cpu_s=200.0, seed=1)

    assert near is not None
    assert near.tries > 1
    retime.keep(path, near)
    kept = corpus.load(path)
    assert (kept.sentence, kept.mutant, kept.signature) == (entry.sentence, "D55", "LIV-05")
    assert judge(kept.script).passed
