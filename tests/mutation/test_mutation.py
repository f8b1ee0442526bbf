"""Edits of a module are found, and reach the functions that the tests call."""

import ast
import gc
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import pytest

from .__main__ import MODULES, ROOT, replace
from .edits import Mutant, mutants

SOURCE = """
LIMIT = 5

def accept(value: int | None) -> bool:
    if value is None:
        raise ValueError("none")
    return value < LIMIT and value != 3
"""


def gc_functions(path: Path) -> list[FunctionType]:
    gc.unfreeze()
    found = (each for each in gc.get_objects() if isinstance(each, FunctionType))
    return [each for each in found if each.__code__.co_filename.endswith(f"access/{path.name}")]


def _texts() -> list[str]:
    return [ast.unparse(mutant.tree) for mutant in mutants(SOURCE)]


@pytest.mark.parametrize(
    "edit",
    [
        "value is not None", "not value is None", "pass", "return None", "value <= LIMIT", "value < LIMIT or",
        "value == 3", "value != 4",
    ],
)  # fmt: skip
def test_each_kind_of_edit_is_made(edit: str) -> None:
    assert sum(edit in text for text in _texts()) == 1


def test_each_mutant_has_one_edit() -> None:
    before = ast.unparse(ast.parse(SOURCE)).splitlines()
    for text in _texts():
        assert sum(one != other for one, other in zip(before, text.splitlines(), strict=True)) == 1


def test_mutant_is_in_the_functions_that_others_have_imported() -> None:
    path = ROOT / "kactl/security/access/principal_rules.py"
    # Of this file, as imported by the other modules.
    kept = {function: function.__code__ for function in gc_functions(path)}
    mutant = next(mutant for mutant in mutants(path.read_text(encoding="utf-8")) if mutant.what == "raise to pass")
    try:
        assert replace(path, mutant) >= 1
    finally:
        for function, code in kept.items():
            function.__code__ = code


def test_edit_outside_of_functions_is_left_out() -> None:
    path = ROOT / "kactl/security/access/principal_rules.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))

    assert replace(path, Mutant(1, "nothing", tree)) == 0


def score_with(tests: str, *, share: int) -> tuple[int, int]:
    """Returns how many edits of the principal, one in `share`, these tests notice, and of how many."""
    program = f"""
from tests.mutation.__main__ import MODULES, score
MODULES["kactl/security/access/principal.py"] = ({tests!r},)
print(score("kactl/security/access/principal.py", {share}))
"""
    output = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout
    noticed, tried = ast.literal_eval(output.splitlines()[-1])
    assert output.count("survived:") == tried - noticed
    return noticed, tried


def test_edits_are_noticed_by_the_tests_of_what_they_change() -> None:
    """Also those that a test file meets while it is imported, as in the parameters of tests."""
    noticed, tried = score_with("tests/security/access/test_principal.py", share=1)
    assert noticed == tried > 0

    noticed, tried = score_with("tests/security/access/test_principal.py::test_identity_cannot_be_changed", share=5)
    assert noticed == 0 < tried


def test_listed_modules_and_tests_exist() -> None:
    for module, tests in MODULES.items():
        assert (ROOT / module).exists(), module
        assert all(Path(ROOT / name).exists() for name in tests), module
