"""Reading of writes to a real ZooKeeper from its transaction log."""

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from tests.support.zookeeper_server import ZooKeeperServer

from .journal import Kind, Torn, Written, read


@pytest.fixture
def session(zookeeper: ZooKeeperServer, chroot: str) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper.connect())
    client.start(timeout=15)
    client.create(chroot)
    yield client
    client.stop()
    client.close()


def below(zookeeper: ZooKeeperServer, chroot: str) -> list[Written]:
    return [write for write in read(zookeeper.folder / "data") if write.path.startswith(f"{chroot}/")]


def test_writes_are_read_in_order_with_their_session(
    zookeeper: ZooKeeperServer, session: KazooClient, chroot: str
) -> None:
    path = f"{chroot}/node"

    session.create(path, b"first")
    session.set(path, b"second")
    session.set(path, b"")
    session.delete(path)
    session.create(f"{chroot}/mine", b"", ephemeral=True)

    written = below(zookeeper, chroot)
    assert [(write.kind, write.path, write.data, write.ephemeral) for write in written] == [
        (Kind.CREATE, path, b"first", False),
        (Kind.SET, path, b"second", False),
        (Kind.SET, path, b"", False),
        (Kind.DELETE, path, None, False),
        (Kind.CREATE, f"{chroot}/mine", b"", True),
    ]
    assert {write.session for write in written} == {session.client_id[0]}
    assert [write.zxid for write in written] == sorted({write.zxid for write in written})


def test_multis_are_read_as_a_unit_and_rejected_ones_not(
    zookeeper: ZooKeeperServer, session: KazooClient, chroot: str
) -> None:
    done = session.transaction()
    done.create(f"{chroot}/a", b"1")
    done.set_data(f"{chroot}/a", b"2")
    refused = session.transaction()
    refused.set_data(f"{chroot}/a", b"3")
    refused.delete(f"{chroot}/nothing")

    done.commit()
    refused.commit()

    written = below(zookeeper, chroot)
    assert [(write.kind, write.data) for write in written] == [(Kind.CREATE, b"1"), (Kind.SET, b"2")]
    assert written[0].zxid == written[1].zxid


def test_end_of_a_session_is_read(zookeeper: ZooKeeperServer, chroot: str) -> None:
    client = KazooClient(zookeeper.connect())
    client.start(timeout=15)
    ours = client.client_id[0]
    client.stop()
    client.close()

    ends = [write for write in read(zookeeper.folder / "data") if write.kind is Kind.END_SESSION]
    assert [write.path for write in ends if write.session == ours] == [""]


def test_another_file_is_rejected(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("data")
    (folder / "version-2").mkdir()
    (folder / "version-2" / "log.1").write_bytes(b"something else altogether")

    with pytest.raises(Torn, match=r"log\.1"):
        read(folder)
