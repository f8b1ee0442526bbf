"""The watch of a cluster, without a server: what it receives, and where it continues."""

from collections.abc import AsyncGenerator

import pytest

from kactl.stores.etcd import EtcdStore
from kactl.stores.etcd.messages import CLASSES, WatchResponse, watch_response
from kactl.stores.etcd.watch import ClusterWatch

pytestmark = pytest.mark.anyio


@pytest.fixture
def store() -> EtcdStore:
    """A store that is not opened."""
    return EtcdStore(["http://127.0.0.1:1"])


@pytest.fixture(autouse=True)
def revision(store: EtcdStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests for the present revision return 6, as if the response were late."""

    async def late() -> int:
        return 6

    monkeypatch.setattr(store._client, "revision", late)


@pytest.fixture
def watch(store: EtcdStore) -> ClusterWatch:
    return store._watch


def encoded(*revisions: int, fragment: bool = False) -> bytes:
    """Events of a key that means nothing to the store."""
    events = [{"kv": {"key": b"/kactl/kactl/other", "mod_revision": revision}} for revision in revisions]
    return bytes(CLASSES["WatchResponse"](events=events, fragment=fragment).SerializeToString())


def result(*revisions: int, fragment: bool = False) -> WatchResponse:
    return watch_response.parse(encoded(*revisions, fragment=fragment))


async def test_watch_continues_within_the_revision_at_which_a_fragment_ended(watch: ClusterWatch) -> None:
    watch._receive(result(5, 7, 7, fragment=True))
    assert watch._seen == 6

    watch._receive(result(7, 8))
    assert watch._seen == 8


async def test_recording_begins_behind_what_was_received_before_it(watch: ClusterWatch) -> None:
    watch._receive(result(9))

    position = await watch.record()

    assert position[0] == 9
    assert not (await watch.changes(position, 9)).whole


async def test_stream_without_leadership_ends_when_leadership_is_needed(
    store: EtcdStore, watch: ClusterWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def responses(method: str, request: bytes) -> AsyncGenerator[bytes, None]:
        for revision in (6, 9):
            yield encoded(revision)
            await watch.record()

    monkeypatch.setattr(store._calls, "responses", responses)
    await watch._stream(watch._interval())

    assert watch._seen == 6  # the next stream continues here, and has the leadership written at 7 and 8


@pytest.mark.parametrize(
    ("name", "state"),
    [
        (b"00000000000000ff/0000000007", (255, 7)),
        (b"00000000000000ff/2147483647", (255, 2**31 - 1)),
        (b"00000000000000ff/2147483648", None),
        (b"00000000000000ff/-000000007", None),
        (b"-0000000000000ff/0000000007", None),
        (b"00000000000000ff/0000000007/", None),
        (b"00000000000000ff", None),
    ],
)
async def test_key_that_is_no_partition_is_recognised(
    store: EtcdStore, name: bytes, state: tuple[int, int] | None
) -> None:
    keys = store._client.keys

    assert keys.state_of_key(keys.states.begin + name) == state
