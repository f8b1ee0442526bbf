"""The folder diagram in docs/architecture.md is current, and each path that the page names exists."""

import re
from pathlib import Path

import pytest

from tests.support import folder_graph, tree

TEXT = folder_graph.PAGE.read_text(encoding="utf-8")


def test_architecture_page_shows_the_current_imports() -> None:
    assert folder_graph.architecture_page(TEXT) == TEXT, "run: python -m tests.support.folder_graph"


def test_graph_counts_imports_of_folders_at_run_time(tmp_path: Path) -> None:
    module = tmp_path / "table.py"
    module.write_text(
        "from typing import TYPE_CHECKING\n"
        "from . import rows\n"
        "from kactl.model import Broker\n"
        "if TYPE_CHECKING:\n    from kactl.actors import actor\n"
        "def load() -> None:\n    import kactl.runtime.clock\n"
    )

    imports = folder_graph.graph({"kactl.decide.state.table": module})

    assert imports == {"decide": {"model", "runtime"}}


def test_levels_reject_a_cycle() -> None:
    with pytest.raises(ValueError, match=r"\['a', 'b'\]"):
        folder_graph.levels({"a": {"b", "c"}, "b": {"a"}, "c": set()})


def test_implied_imports_are_not_drawn() -> None:
    assert folder_graph.direct({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"a": {"b"}, "b": {"c"}, "c": set()}


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:kactl|actors|transports|tests|bench)/[\w/.]*)`", TEXT))))
def test_paths_on_the_architecture_page_exist(path: str) -> None:
    assert (tree.ROOT / path).exists()
