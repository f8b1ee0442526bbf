"""Page of the programs in examples/, with their code."""

import ast
from pathlib import Path
from typing import Final

from .docstrings import escaped

_HEAD: Final = """# Example programs

Complete programs, in the folder `examples/` of the source tree. The tests run them."""


def examples_page(root: Path) -> str:
    """Returns the page: a section for each program, with its docstring above its code."""
    return "\n\n".join((_HEAD, *(_section(file) for file in sorted((root / "examples").glob("*.py"))))) + "\n"


def _section(file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    words = ast.get_docstring(ast.parse(text)) or ""
    _, _, code = text.partition('"""\n') if not words else ("", "", text.split('"""', 2)[2])
    first, _, rest = words.partition("\n\n")
    usage = f"\n\n```text\n{rest}\n```" if rest else ""
    return f"## `{file.name}`\n\n{escaped(first)}{usage}\n\n```python\n{code.strip()}\n```"
