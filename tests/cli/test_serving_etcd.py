"""A cluster of `kactl up` that is stored in etcd."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from kactl.cli import doctor
from kactl.cli.serving import Server, embedded
from kactl.cli.stores import store_factory
from kactl.config.file import load
from kactl.config.settings import Config
from kactl.model import TopicPartition
from kactl.model.errors import BadConfig
from kactl.stores.etcd import EtcdStore
from kactl.stores.sqlite import NO_HOLDER
from tests.support.etcd_server import EtcdServer, require_etcd
from tests.support.processes import free_port

START_S = 60.0
ORDERS = TopicPartition("orders", 0)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    require_etcd()
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


def config_of(url: str, tmp_path: Path, **keys: object) -> Config:
    settings: dict[str, object] = {
        "node-id": 0,
        "api.listen": "127.0.0.1:0",
        "store.kind": "etcd",
        "store.endpoints": url,
        "store.session-timeout": "4s",
        "log.folder": str(tmp_path / "log"),
    }
    return load(None, {}, settings | keys)


def leader(server: Server) -> int | None:
    view = server.controller.partition(ORDERS)
    return None if view is None else view.leader


@pytest.mark.anyio
@pytest.mark.interop
async def test_cluster_in_etcd_elects_and_outlives_its_process(etcd: EtcdServer, tmp_path: Path) -> None:
    config = config_of(etcd.url, tmp_path)

    with anyio.fail_after(START_S):
        async with embedded(config, note=lambda text: None) as server:
            assert server.participants is not None
            await server.controller.create_topic("orders", assignment={0: [1, 2, 3]})
            await server.participants.kill(1)
            while leader(server) != 2:
                await anyio.lowlevel.checkpoint()

    with anyio.fail_after(START_S):
        async with embedded(config, note=lambda text: None) as server:
            assert server.controller.snapshot().epoch == 2
            view = server.controller.partition(ORDERS)
            assert view is not None
            assert (view.replicas, view.leader in (2, 3)) == ((1, 2, 3), True)


@pytest.mark.interop
def test_members_are_checked(etcd: EtcdServer, tmp_path: Path) -> None:
    file = tmp_path / "kactl.toml"
    missing = f"http://127.0.0.1:{free_port()}"
    file.write_text(f'node-id = 0\n[store]\nkind = "etcd"\nendpoints = ["{etcd.url}", "{missing}"]\n')

    healthy, unreachable = doctor._etcd(str(file))

    assert (healthy.result, healthy.check) == ("pass", f"etcd {etcd.url}")
    assert healthy.value.startswith("3.")
    assert unreachable.result == "FAIL"
    assert "check that it runs" in unreachable.detail


def test_password_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret\n")
    file.chmod(0o600)
    keys = {"store.user": "kactl", "store.password-file": str(file)}
    config = config_of("http://127.0.0.1:2379", tmp_path, **keys)

    store = store_factory(config, clock=None, holder=NO_HOLDER)()

    assert isinstance(store, EtcdStore)
    assert store._calls._user == "kactl"
    assert store._calls._password.reveal() == b"secret"


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"store.user": "kactl", "store.password-file": "/none"}, "store.password-file: /none cannot be read"),
        ({"store.ca": "/none"}, "store.ca: /none cannot be read"),
        ({"store.cert": "/none", "store.key": "/none"}, "store.cert: /none cannot be read"),
    ],
)
def test_unreadable_file_is_named(tmp_path: Path, keys: dict[str, object], reason: str) -> None:
    config = config_of("https://127.0.0.1:2379", tmp_path, **keys)

    with pytest.raises(BadConfig, match=reason):
        store_factory(config, clock=None, holder=NO_HOLDER)


def test_other_store_is_refused_rather_than_taken_for_etcd(tmp_path: Path) -> None:
    config = load(None, {}, {"node-id": 0, "store.kind": "memory"})

    with pytest.raises(BadConfig, match=r"store\.kind: no cluster of this process is stored in memory: write sqlite"):
        store_factory(config, clock=None, holder=NO_HOLDER)
