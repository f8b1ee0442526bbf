"""Diagrams of pages as lists of their arrows.

A page has a diagram as Mermaid source, which code hosting sites draw. The site needs no script for it and lays nothing
out: it lists the arrows by their beginning, which is also what a screen reader can follow.
"""

import html
import re
from typing import Final

_NODE: Final = re.compile(r"(\w+)\[([^\]]+)\]")
_EDGE: Final = re.compile(r"(\w+) --> (\w+)(?:: (.+))?")
_FORMS: Final = ("stateDiagram-v2", "flowchart TD")


class BadDiagram(Exception):
    """A diagram has a form or a line that the site cannot list."""


def listed(source: str) -> str:
    """Returns the arrows of a diagram as one block of HTML: a row for each beginning, with all its ends.

    Args:
        source: Mermaid source, without the fence.

    Raises:
        BadDiagram: the source has another form, or a line that is neither node nor arrow.
    """
    form, _, body = source.strip().partition("\n")
    if form not in _FORMS:
        raise BadDiagram(f"the site lists {' and '.join(_FORMS)}, not {form!r}")
    titles: dict[str, str] = {}
    ends: dict[str, list[str]] = {}
    for line in filter(None, map(str.strip, body.splitlines())):
        if node := _NODE.fullmatch(line):
            titles[node[1]] = node[2]
        elif edge := _EDGE.fullmatch(line):
            by = f" ({html.escape(edge[3])})" if edge[3] else ""
            ends.setdefault(edge[1], []).append(html.escape(titles.get(edge[2], edge[2])) + by)
        else:
            raise BadDiagram(f"{line!r} is no node and no arrow")
    rows = "".join(
        f"<tr><td>{html.escape(titles.get(begin, begin))}</td><td>{', '.join(after)}</td></tr>"
        for begin, after in ends.items()
    )
    return f"<table><thead><tr><th>from</th><th>to</th></tr></thead><tbody>{rows}</tbody></table>\n"
