"""Diagrams of pages in the site: lists of all their arrows."""

import re
from typing import Final

import pytest

from docs.website.diagrams import BadDiagram, listed
from docs.website.pages import page_places, relinked
from kactl.decide.machines.diagrams import PARTITION, REPLICA, Diagram
from tests.support.folder_graph import direct, tree_graph
from tests.support.tree import ROOT

_FENCE: Final = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)
_ROW: Final = re.compile(r"<tr><td>(.*?)</td><td>(.*?)</td></tr>")


def rows(page: str, number: int = 0) -> dict[str, list[str]]:
    """Returns what the arrows of a diagram lead to, by their beginnings."""
    source = _FENCE.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))[number]
    return {begin: ends.split(", ") for begin, ends in _ROW.findall(listed(source))}


@pytest.mark.parametrize(("number", "diagram"), [(0, PARTITION), (1, REPLICA)])
def test_state_machine_is_listed_with_all_transitions(number: int, diagram: Diagram) -> None:
    shown = {(begin, end) for begin, ends in rows("state-machines.md", number).items() for end in ends}

    assert shown == {
        (one.before.name, f"{one.after.name} ({one.needs})" if one.needs else one.after.name)
        for one in diagram.transitions
    }


def test_graph_of_folders_is_listed_with_every_direct_import() -> None:
    shown = rows("architecture.md")

    assert sum(map(len, shown.values())) == sum(map(len, direct(tree_graph()).values()))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("sequenceDiagram\n    a->>b: hello", "not 'sequenceDiagram'"),
        ("stateDiagram-v2\n    NEW ==> ONLINE", "'NEW ==> ONLINE' is no node"),
        ("flowchart TD\n    a(round)", r"'a\(round\)' is no node and no arrow"),
    ],
)
def test_diagram_that_cannot_be_listed_is_an_error(source: str, words: str) -> None:
    with pytest.raises(BadDiagram, match=words):
        listed(source)


def test_pages_of_the_site_have_lists_in_place_of_sources() -> None:
    places = page_places(ROOT)
    source = next(place for place in places if place.name == "state-machines.md")

    text = relinked((ROOT / source).read_text(encoding="utf-8"), source, places, ROOT)

    assert text.count("<thead><tr><th>from</th>") == 2
    assert "stateDiagram" not in text


def test_titles_are_escaped() -> None:
    assert "<td>&lt;b&gt;</td>" in listed("flowchart TD\n    a[<b>]\n    a --> a")
