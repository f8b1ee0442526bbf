"""List of the decisions, from the pages in docs/decisions/."""

from pathlib import Path
from typing import Final

_HEAD: Final = """# Decisions

Each page gives a decision, its alternatives, the reasons, and what would change it."""


def decisions_page(root: Path) -> str:
    """Returns the page: a list of the titles, with their numbers as in the files."""
    pages = sorted((root / "docs" / "decisions").glob("[0-9]*.md"))
    titles = (f"* [{_title(page)}]({page.name})" for page in pages)
    contents = "\n".join(("```{toctree}", ":hidden:", "", *(page.stem for page in pages), "```"))
    return "\n".join((_HEAD, "", *titles, "", contents)) + "\n"


def _title(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
