"""The model of ZooKeeper and a real server agree on random scripts. More: `make judge`."""

from collections.abc import Iterator
from typing import Final

import pytest

from tests.sim.engine.worlds.zookeeper import server as server_module
from tests.support.zookeeper_fixtures import jars
from tests.support.zookeeper_server import ZooKeeperServer

from .judge import SCRIPT_OPERATIONS, TICK_MS, Difference, differences, judge, on_model
from .scripts import script

__all__ = ["jars"]

# 10,000 operations in all.
SCRIPTS: Final = 20
BLOCKS: Final = 4
# Scripts that showed a difference once.
DIFFERED: Final = (2, 5, 10, 13, 20, 36)


@pytest.fixture(scope="module")
def server(jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"), tick_ms=TICK_MS) as server:
        yield server


@pytest.mark.interop
@pytest.mark.parametrize("block", range(BLOCKS))
def test_random_scripts_have_equal_results(server: ZooKeeperServer, block: int) -> None:
    size = SCRIPTS // BLOCKS
    found: list[Difference] = []
    for seed in range(1_000 + block * size, 1_000 + (block + 1) * size):
        found += judge(server, seed)

    assert not found, "\n".join(map(str, found))


@pytest.mark.interop
@pytest.mark.parametrize("seed", DIFFERED)
def test_scripts_that_differed_have_equal_results(server: ZooKeeperServer, seed: int) -> None:
    assert judge(server, seed) == []


def test_equal_scripts_have_equal_results_on_the_model() -> None:
    steps = script(7, SCRIPT_OPERATIONS)

    assert list(differences(7, on_model(7, steps), on_model(7, steps))) == []


def test_changed_model_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = script(7, SCRIPT_OPERATIONS)
    before = on_model(7, steps)

    monkeypatch.setattr(server_module.ServerEnd, "fired", lambda *_: None)

    assert any(difference.client != "tree" for difference in differences(7, before, on_model(7, steps)))
