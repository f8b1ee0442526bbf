"""Pages of the site: their place in it, and the links between them.

A page is written for readers of the repository, with links relative to its file. The site has another layout, so each
link is changed to the place of its target. A link to a file that is not a page is an error, except to source files,
which the site shows by name.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from .diagrams import listed
from .layout import PAGES, SITE_PAGES

# Inline links and images of Markdown: the text, the target, and the anchor in it.
_LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]*)(#[^)\s]*)?\)")
# Diagrams that code hosting sites draw by scripts of three megabytes. The site lists their arrows in their place.
_DIAGRAM: Final = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FENCE: Final = re.compile(r"^(```.*?^```[ ]*$)", re.MULTILINE | re.DOTALL)
_PICTURES: Final = (".png", ".svg")


class BrokenLink(Exception):
    """A page has a link to a file that does not exist."""


def stage(root: Path, folder: Path) -> None:
    """Write every page of the tree at `root` to `folder`, with links for the site.

    Raises:
        BrokenLink: the target of a link does not exist.
    """
    places = page_places(root)
    for source, place in places.items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        file = root / source
        if file.suffix == ".md":
            target.write_text(relinked(file.read_text(encoding="utf-8"), source, places, root), encoding="utf-8")
        else:
            target.write_bytes(file.read_bytes())


def page_places(root: Path) -> dict[PurePosixPath, PurePosixPath]:
    """Returns the place in the site of each page and picture, by its path in the tree."""
    docs = root / "docs"
    found = [file.relative_to(docs) for suffix in (".md", *_PICTURES) for file in sorted(docs.rglob(f"*{suffix}"))]
    places = {PurePosixPath("docs", file): PurePosixPath(file) for file in found if file.parts[0] != "website"}
    return places | {PurePosixPath(source): PurePosixPath(place) for source, place in PAGES.items()}


def relinked(text: str, source: PurePosixPath, places: Mapping[PurePosixPath, PurePosixPath], root: Path) -> str:
    """Returns the text of a page with links for its place in the site. Diagrams become lists; other code blocks
    stay as they are.

    Raises:
        BrokenLink: the target of a link does not exist.
        BadDiagram: a diagram cannot be listed.
    """

    def changed(match: re.Match[str]) -> str:
        mark, words, target, anchor = match[1], match[2], match[3], match[4] or ""
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        named = PurePosixPath(os.path.normpath(source.parent / target))
        place = places.get(named) or SITE_PAGES.get(str(named))
        if place is not None:
            return f"{mark}[{words}]({os.path.relpath(place, places[source].parent)}{anchor})"
        if not (root / named).exists():
            raise BrokenLink(f"{source}: there is no {named}")
        return words if words.startswith("`") else f"{words} (`{named}`)"

    parts = _FENCE.split(text)
    linked = "".join(part if part.startswith("```") else _LINK.sub(changed, part) for part in parts)
    return _DIAGRAM.sub(lambda match: listed(match[1]), linked)
