"""The contract of participants over several networks and stores."""

import itertools
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

import kactl
from kactl.stores.base import Store
from kactl.stores.memory import MemoryState, MemoryStore
from kactl.testing.contracts.participants import ParticipantContract
from kactl.transports.base import Network
from tests.transports.test_guide import guide


@pytest.fixture
def in_memory() -> Callable[[], Store]:
    state = MemoryState()
    return lambda: MemoryStore(state)


class TestParticipantsInMemory(ParticipantContract):
    @pytest.fixture
    def network(self) -> Network:
        return kactl.MemoryHub()

    @pytest.fixture
    def open_store(self, in_memory: Callable[[], Store]) -> Callable[[], Store]:
        return in_memory


@pytest.mark.slow
class TestParticipantsOverTcpAndSqlite(ParticipantContract):
    @pytest.fixture
    def network(self) -> Network:
        return kactl.TcpNetwork(listen="127.0.0.1:0")

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[], Store]:
        return lambda: kactl.SqliteStore(tmp_path / "kactl.db")


@pytest.mark.slow
class TestParticipantsOverPipes(ParticipantContract):
    """The network of the guide, and a handler that takes several turns of the event loop to end."""

    @pytest.fixture
    def network(self) -> Network:
        made: Network = guide().PipeNetwork()
        return made

    @pytest.fixture
    def open_store(self, in_memory: Callable[[], Store]) -> Callable[[], Store]:
        return in_memory

    @pytest.fixture
    def make_handler(self) -> type[kactl.PartitionHandler]:
        return SlowToEnd


class SlowToEnd(kactl.PartitionHandler):
    async def lead(self, leader: kactl.Leader) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                for _ in itertools.repeat(None, 10):
                    await anyio.lowlevel.checkpoint()
