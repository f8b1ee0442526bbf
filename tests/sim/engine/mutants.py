"""Mutants: edits that take one safeguard out of the code, applied while its modules are imported.

A simulator that never fails proves nothing about itself. Each mutant must make it fail. The edits are lists of old and
new text in a TOML file, and a finder on `sys.meta_path` applies those of one mutant. The source files, and the bytecode
on disk, stay as they are; the product contains no switch.

A module that is imported already cannot be edited. `python -c BOOTSTRAP THIS_FILE ...` therefore runs this file by
its path, before the package. It uses the standard library only.
"""

import importlib.abc
import importlib.machinery
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final, NamedTuple

# A program for `python -c`: mutate, then run a module as `python -m` does.
#   arguments: this file, the file of the mutants, the number of one, the module, and the arguments of the module.
BOOTSTRAP: Final = (
    "import runpy, sys\n"
    "here, mutants, number, module, *rest = sys.argv[1:]\n"
    "runpy.run_path(here)['mutate'](mutants, number)\n"
    "sys.argv = [module, *rest]\n"
    "runpy.run_module(module, run_name='__main__', alter_sys=True)\n"
)
# The folders that are imported as parts of the package from elsewhere in the tree.
_OUTSIDE: Final = ("actors", "transports")
_PACKAGE: Final = "kactl"


class MutantError(ValueError):
    """A mutant cannot be read or applied. The text names it, the reason and the remedy."""


class Edit(NamedTuple):
    """Replacement of one text in one file.

    Attributes:
        file: path from the root of the tree.
        old: text that occurs exactly once in it.
    """

    file: str
    old: str
    new: str

    @property
    def module(self) -> str:
        """Dotted name of the module."""
        name = self.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        return f"{_PACKAGE}.{name}" if self.file.split("/")[0] in _OUTSIDE else name


class Mutant(NamedTuple):
    """One safeguard, and the edits that take it out.

    Attributes:
        number: stable, for example MUT-04.
        kind: class of the mutant, which determines its budget.
        safeguard: the safeguard that is taken out.
        must_break: numbers of the invariants of which one must be reported as violated.
        worlds: worlds in which it can be found.
        budget_cpu_s: processor time in which random seeds must find it.
        not_applicable: why it cannot be applied to the code as it is; empty if it can.
    """

    number: str
    kind: str
    safeguard: str
    must_break: tuple[str, ...]
    worlds: tuple[str, ...]
    edits: tuple[Edit, ...]
    budget_cpu_s: float
    not_applicable: str


def load(path: Path) -> dict[str, Mutant]:
    """Returns the mutants of a file, by number, in its order.

    Raises:
        MutantError: the file is damaged.
        OSError: it cannot be read.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        budgets = document["budgets_cpu_s"]
        mutants = [_mutant(entry, budgets) for entry in document["mutant"]]
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        reason = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise MutantError(f"{path}: not a list of mutants: {reason}: restore the file") from error
    by_number = {mutant.number: mutant for mutant in mutants}
    if len(by_number) < len(mutants):
        raise MutantError(f"{path}: a number occurs twice: give each mutant its own")
    return by_number


def _mutant(entry: dict[str, Any], budgets: dict[str, float]) -> Mutant:
    edits = tuple(Edit(edit["file"], edit["old"], edit["new"]) for edit in entry.get("edit", ()))
    return Mutant(
        entry["number"],
        entry["class"],
        entry["safeguard"],
        tuple(entry["must_break"]),
        tuple(entry.get("worlds", ())),
        edits,
        budgets[entry["class"]],
        entry.get("not_applicable", ""),
    )


def find(path: Path, number: str) -> Mutant:
    """Returns one mutant that can be applied.

    Raises:
        MutantError: there is none of that number, or it does not apply to the code as it is.
        OSError: the file cannot be read.
    """
    mutants = load(path)
    if number not in mutants:
        raise MutantError(f"{path}: there is no mutant {number}: choose one of {', '.join(mutants)}")
    mutant = mutants[number]
    if mutant.not_applicable:
        raise MutantError(f"{number} is not applicable: {mutant.not_applicable}")
    return mutant


def edited(source: str, edits: Sequence[Edit], *, number: str) -> str:
    """Returns the source text after some edits of it.

    Raises:
        MutantError: an old text does not occur exactly once.
    """
    for edit in edits:
        count = source.count(edit.old)
        if count != 1:
            raise MutantError(
                f"{number}: its old text occurs {count} times in {edit.file}, not once: move the edit with the code"
            )
        source = source.replace(edit.old, edit.new)
    return source


def install(mutant: Mutant) -> None:
    """Apply a mutant to all later imports of its modules.

    Raises:
        MutantError: one of them is imported already.
    """
    modules = dict.fromkeys(edit.module for edit in mutant.edits)
    for module in modules:
        if module in sys.modules:
            raise MutantError(f"{mutant.number}: {module} is imported already: apply mutants in a fresh process")
    sys.meta_path.insert(0, _Finder(mutant))


def mutate(path: str, number: str) -> None:
    """Apply one mutant of a file, or end the process with code 2 and the reason."""
    try:
        install(find(Path(path), number))
    except (MutantError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of one mutant, and loads them edited."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        edits = [edit for edit in self._mutant.edits if edit.module == fullname]
        if not edits:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            return None
        spec.loader = _Loader(fullname, spec.loader.path, self._mutant.number, edits)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles the edited source; reads and writes no bytecode."""

    def __init__(self, fullname: str, path: str, number: str, edits: Sequence[Edit]) -> None:
        super().__init__(fullname, path)
        self._number = number
        self._edits = edits

    def get_code(self, fullname: str) -> CodeType:
        source = edited(self.get_data(self.path).decode("utf-8"), self._edits, number=self._number)
        return compile(source, self.path, "exec", dont_inherit=True)
