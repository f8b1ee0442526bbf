"""Pictures of the diagrams: all of what the source has, in places that do not overlap."""

import re
from itertools import combinations
from typing import Final

import pytest

from docs.website.diagrams import BadDiagram, drawn
from docs.website.layers import HEIGHT, arranged
from docs.website.pages import page_places, relinked
from kactl.decide.machines.diagrams import PARTITION, REPLICA, Diagram
from tests.support.folder_graph import direct, tree_graph
from tests.support.tree import ROOT

_FENCE: Final = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)


def pictures(page: str) -> list[str]:
    return [drawn(source) for source in _FENCE.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))]


@pytest.mark.parametrize(("number", "diagram"), [(0, PARTITION), (1, REPLICA)])
def test_picture_of_a_state_machine_has_its_states_and_transitions(number: int, diagram: Diagram) -> None:
    picture = pictures("state-machines.md")[number]

    assert sorted(re.findall(r"<text x[^>]*>(\w+)</text>", picture)) == sorted(each.name for each in diagram.meanings)
    assert picture.count('class="edge"') == len(diagram.transitions)
    for each in diagram.transitions:
        assert (
            f"<li>{each.before.name} to {each.after.name}{f', by {each.needs}' if each.needs else ''}</li>" in picture
        )


def test_picture_of_folders_has_every_direct_import() -> None:
    (picture,) = pictures("architecture.md")
    imports = direct(tree_graph())

    assert picture.count("<rect") == len(imports)
    assert picture.count('class="edge"') == sum(map(len, imports.values()))


def test_nodes_of_a_graph_do_not_overlap_and_arrows_point_down() -> None:
    imports = direct(tree_graph())
    edges = [(before, after) for before, others in imports.items() for after in others]

    picture = arranged({name: f"kactl/{name}/" for name in imports}, edges)

    for one, other in combinations(picture.nodes, 2):
        assert abs(one.y - other.y) >= HEIGHT or abs(one.x - other.x) >= (one.width + other.width) / 2, (one, other)
    for route in picture.routes:
        assert [y for _, y in route] == sorted(y for _, y in route)
        for node in picture.nodes:
            for x, y in route[1:-1]:
                assert abs(y - node.y) > HEIGHT / 2 or abs(x - node.x) > node.width / 2, (route, node)
    for node in picture.nodes:
        assert node.width / 2 <= node.x <= picture.width - node.width / 2


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("sequenceDiagram\n    a->>b: hello", "not 'sequenceDiagram'"),
        ("stateDiagram-v2\n    NEW --> LOST", "no picture with the states NEW, LOST"),
        ("stateDiagram-v2\n    NEW ==> ONLINE", "'NEW ==> ONLINE' is no transition"),
        ("flowchart TD\n    a(round)", r"'a\(round\)' is no node and no arrow"),
        ("flowchart TD\n    a[A]\n    a --> b", "an arrow from a to b"),
    ],
)
def test_diagram_that_cannot_be_drawn_is_an_error(source: str, words: str) -> None:
    with pytest.raises(BadDiagram, match=words):
        drawn(source)


def test_pages_of_the_site_have_pictures_in_place_of_sources() -> None:
    places = page_places(ROOT)
    source = next(each for each in places if each.name == "state-machines.md")

    text = relinked((ROOT / source).read_text(encoding="utf-8"), source, places, ROOT)

    assert text.count("<svg") == 2
    assert "stateDiagram" not in text
    assert len(set(re.findall(r'marker id="([^"]+)"', text))) == 2


def test_titles_are_escaped() -> None:
    assert "&lt;b&gt;" in drawn("flowchart TD\n    a[<b>]")
    assert "<b>" not in drawn("flowchart TD\n    a[<b>]")
