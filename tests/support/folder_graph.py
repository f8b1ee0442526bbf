"""Import graph of the folders, as drawn in docs/architecture.md.

`python -m tests.support.folder_graph` writes the diagram and the table into the page; a test fails while the page
differs from the tree. The graph has one node for each folder of the package and for each module in its root.
`kactl/__init__.py` is left out, because it imports what it exports. Imports below `if TYPE_CHECKING:` do not count.
"""

import ast
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from . import tree

PAGE: Final = tree.ROOT / "docs" / "architecture.md"
BEGIN: Final = "<!-- begin: python -m tests.support.folder_graph -->\n"
END: Final = "<!-- end -->\n"

PACKAGE: Final = "kactl"


@functools.cache
def tree_graph() -> dict[str, set[str]]:
    """Returns the graph of the tree under test; cached, since it takes more than a second."""
    return graph(tree.modules())


def graph(modules: Mapping[str, Path]) -> dict[str, set[str]]:
    """Returns the folders that each folder imports.

    Args:
        modules: file of each module by its dotted name.
    """
    imports: dict[str, set[str]] = {}
    for module, file in modules.items():
        if module == PACKAGE:
            continue
        code = ast.parse(file.read_text(encoding="utf-8"))
        package = module if file.name == "__init__.py" else module.rpartition(".")[0]
        names = {_folder(name) for name in _imported(code, package) if name.startswith(f"{PACKAGE}.")}
        imports.setdefault(_folder(module), set()).update(names - {_folder(module)})
    return imports


def _folder(module: str) -> str:
    return module.split(".")[1]


def _imported(node: ast.AST, package: str) -> Iterator[str]:
    """Yields the dotted name of each import at run time, functions included."""
    for child in tree.statements(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            parts = package.split(".")[: len(package.split(".")) - child.level + 1] if child.level else []
            base = ".".join([*parts, *([child.module] if child.module else [])])
            yield from (f"{base}.{alias.name}" for alias in child.names)
        else:
            yield from _imported(child, package)


def levels(imports: Mapping[str, set[str]]) -> dict[str, int]:
    """Returns the length of the longest chain of imports below each folder.

    Raises:
        ValueError: the imports contain a cycle.
    """
    level: dict[str, int] = {}
    while len(level) < len(imports):
        ready = [folder for folder in imports if folder not in level and imports[folder] <= level.keys()]
        if not ready:
            raise ValueError(f"import cycle between {sorted(imports.keys() - level.keys())}")
        level |= {folder: 1 + max((level[below] for below in imports[folder]), default=-1) for folder in ready}
    return level


def direct(imports: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Returns the graph without the imports that a longer chain implies (its transitive reduction)."""

    def below(folder: str) -> set[str]:
        return imports[folder].union(*(below(other) for other in imports[folder]))

    return {
        folder: {other for other in others if not any(other in below(via) for via in others)}
        for folder, others in imports.items()
    }


def drawing() -> str:
    """Returns the diagram and the table in Markdown."""
    imports = tree_graph()
    level = levels(imports)
    order = sorted(imports, key=lambda folder: (-level[folder], folder))
    edges = direct(imports)
    return "\n".join(
        [
            "```mermaid",
            "flowchart TD",
            *(f"    {folder}[{_path(folder)}]" for folder in order),
            *(f"    {folder} --> {other}" for folder in order for other in sorted(edges[folder])),
            "```",
            "",
            "| level | folder | imports |",
            "| --- | --- | --- |",
            *(
                f"| {level[folder]} | `{_path(folder)}` | {', '.join(sorted(imports[folder])) or 'none'} |"
                for folder in order
            ),
            "",
        ]
    )


def _path(folder: str) -> str:
    """Returns the path of a folder or module from the root of the project."""
    if folder in ("actors", "transports"):
        return f"{folder}/"
    return f"{PACKAGE}/{folder}/" if (tree.ROOT / PACKAGE / folder).is_dir() else f"{PACKAGE}/{folder}.py"


def architecture_page(text: str) -> str:
    """Returns the text of the page with the drawing between its two marks replaced."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} lacks the marks of the generated part")
    return before + begin + drawing() + end + after


if __name__ == "__main__":
    PAGE.write_text(architecture_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
