"""Command `python -m bench`, which lists the benchmarks and the programs that process their results."""

import ast
from pathlib import Path
from typing import Final

from .tables import plain

_FOLDER: Final = Path(__file__).parent
BENCHES: Final = (
    "election",
    "failover",
    "latency",
    "channel",
    "wire",
    "store",
    "stores",
    "lease",
    "roles",
    "outage",
    "security",
    "encryption",
    "forensics",
    "whatif",
    "answers",
    "ownership",
    "race",
)
TOOLS: Final = ("compare", "report")


def first_line(name: str) -> str:
    """Returns the first line of a module's docstring without importing the module."""
    path = _FOLDER / f"{name}.py" if (_FOLDER / f"{name}.py").exists() else _FOLDER / name / "__main__.py"
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return said.splitlines()[0] if said else ""


def main() -> None:
    for what, names in (("measure", BENCHES), ("work on figures", TOOLS)):
        print(plain([f"{what}:", ""], []))
        for name in names:
            print(f"  python -m bench.{name:<10} {first_line(name)}")
        print()
    print("Each explains itself with --help; bench/README.md has the rest.")


if __name__ == "__main__":
    main()
