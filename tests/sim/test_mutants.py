"""The list of mutants fits the code, and a mutant is applied in a fresh process only."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.sim.engine import mutants
from tests.sim.engine.mutants import BOOTSTRAP, Edit, Mutant, MutantError, edited, find, install, load
from tests.support import tree

MUTANTS: Final = Path(__file__).with_name("mutants.toml")
LOADED: Final = load(MUTANTS)
APPLICABLE: Final = [mutant for mutant in LOADED.values() if not mutant.not_applicable]


def mutated(number: str, program: str, *, file: Path = MUTANTS) -> subprocess.CompletedProcess[str]:
    """Run a module of the standard library, `timeit`, as the program of a mutated process."""
    arguments = [mutants.__file__, str(file), number, "timeit", "-n1", "-r1", program]
    return subprocess.run(
        [sys.executable, "-c", BOOTSTRAP, *arguments], cwd=tree.ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("mutant", APPLICABLE, ids=lambda mutant: mutant.number)
def test_edits_apply_once_and_compile(mutant: Mutant) -> None:
    assert mutant.edits, "a mutant without edits is not applicable: give the reason"
    for file in dict.fromkeys(edit.file for edit in mutant.edits):
        source = (tree.ROOT / file).read_text(encoding="utf-8")
        edits = [edit for edit in mutant.edits if edit.file == file]

        changed = edited(source, edits, number=mutant.number)

        assert changed != source
        compile(changed, file, "exec")


def test_mutants_without_edits_give_a_reason() -> None:
    for mutant in LOADED.values():
        assert bool(mutant.not_applicable) != bool(mutant.edits), mutant.number
        assert bool(mutant.not_applicable) != bool(mutant.worlds), mutant.number
        assert mutant.must_break, mutant.number


def test_list_is_complete() -> None:
    """Numbers are stable: 68 safeguards, some of them in several places, and 71 bugs that were fixed."""
    numbers = {"-".join(number.split("-")[:2]).removesuffix("b") for number in LOADED}
    safeguards = {f"MUT-{number:02}" for number in (*range(1, 43), *range(49, 75))}
    assert numbers == safeguards | {f"D{number}" for number in range(1, 72)}


def test_mutated_module_behaves_differently() -> None:
    check = (
        "from kactl.stores.memory.state import MemoryState as S; from kactl.model import Fence as F; S().check(F(7, 7))"
    )

    assert "ControllerMoved" in mutated("MUT-15", check).stderr
    assert mutated("MUT-01-memory", check).returncode == 0


def test_other_modules_and_files_are_unchanged() -> None:
    program = "import kactl.stores.memory.state as m, inspect; assert 'if False' not in inspect.getsource(m)"

    done = mutated("MUT-01-memory", program)

    # The text on disk is the original; only the code that runs is another.
    assert done.returncode == 0, done.stderr


def test_imported_module_is_not_mutated() -> None:
    mutant = find(MUTANTS, "MUT-01-memory")
    import kactl.stores.memory.state  # noqa: F401

    with pytest.raises(MutantError, match=r"MUT-01-memory: kactl\.stores\.memory\.state is imported already: apply"):
        install(mutant)


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        ("MUT-99", "there is no mutant MUT-99: choose one of MUT-01-memory, "),
        ("MUT-07", "MUT-07 is not applicable: kactl has no replicated log yet"),
    ],
)
def test_unknown_mutant_ends_the_process_with_the_reason(number: str, reason: str) -> None:
    done = mutated(number, "pass")

    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr


@pytest.mark.parametrize("source", ["", "return 1\nreturn 1\n"])
def test_old_text_that_does_not_occur_once_is_an_error(source: str) -> None:
    with pytest.raises(MutantError, match=rf"MUT-X: its old text occurs {source.count('return')} times in a\.py, not"):
        edited(source, [Edit("a.py", "return 1\n", "return 2\n")], number="MUT-X")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("mutant = 3", "there is no 'budgets_cpu_s'"),
        ("budgets_cpu_s = {a = 1}\n[[mutant]]\nnumber = 'M'", "there is no 'class'"),
        ("[[mutant]\n", "Expected"),
        ("budgets_cpu_s = {a = 1}\nmutant = 3", "not iterable"),
    ],
)
def test_damaged_list_is_an_error(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "mutants.toml"
    path.write_text(text)
    with pytest.raises(MutantError, match=rf"mutants\.toml: not a list of mutants: .*{reason}.*: restore the file"):
        load(path)


def test_number_that_occurs_twice_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "mutants.toml"
    entry = "[[mutant]]\nnumber = 'M'\nclass = 'a'\nsafeguard = 's'\nmust_break = []\nnot_applicable = 'x'\n"
    path.write_text(f"budgets_cpu_s = {{a = 1}}\n{entry}{entry}")
    with pytest.raises(MutantError, match="a number occurs twice"):
        load(path)
