"""The watch of a cluster, without a server: what it receives, and where it continues."""

import pytest

from kactl.stores.etcd import EtcdStore
from kactl.stores.etcd.messages import KeyValue, WatchEvent, WatchResult
from kactl.stores.etcd.watch import ClusterWatch

pytestmark = pytest.mark.anyio


@pytest.fixture
def store() -> EtcdStore:
    """A store that is not opened."""
    return EtcdStore(["http://127.0.0.1:1"])


@pytest.fixture
def watch(store: EtcdStore) -> ClusterWatch:
    return store._watch


def result(*revisions: int, fragment: bool = False) -> WatchResult:
    """Events of a key that means nothing to the store."""
    events = [WatchEvent(KeyValue(b"/kactl/kactl/other", mod_revision=revision)) for revision in revisions]
    return WatchResult(events=events, fragment=fragment)


async def test_watch_continues_within_the_revision_at_which_a_fragment_ended(watch: ClusterWatch) -> None:
    watch._receive(result(5, 7, 7, fragment=True))
    assert watch._seen == 6

    watch._receive(result(7, 8))
    assert watch._seen == 8
