"""Tests of which watches an event fires, depending on earlier requests."""

import pytest
from kazoo.protocol.serialization import Exists, GetChildren, GetChildren2, GetData
from kazoo.protocol.states import EventType

from kactl.stores.zookeeper.connection.armed_watches import ArmedWatches, is_within
from kactl.stores.zookeeper.request import Unwatch, WatchTree
from kactl.stores.zookeeper.set_watches import SetWatches

DATA_KINDS = (EventType.CREATED, EventType.CHANGED, EventType.DELETED)


@pytest.mark.parametrize(
    ("request_", "found", "fired_by"),
    [
        (GetData("/a", True), True, DATA_KINDS),
        (GetData("/a", True), False, ()),  # no watch is armed at a node that does not exist,
        (Exists("/a", True), True, DATA_KINDS),
        (Exists("/a", True), False, DATA_KINDS),  # except by Exists, which waits for the node's creation
        (GetChildren("/a", True), True, (EventType.CHILD, EventType.DELETED)),
        (GetChildren2("/a", True), True, (EventType.CHILD, EventType.DELETED)),
        (GetChildren2("/a", True), False, ()),
        (GetData("/a", None), True, ()),
    ],
)
@pytest.mark.parametrize("kind", [*DATA_KINDS, EventType.CHILD])
def test_watch_of_one_node_fires_once(request_: object, found: bool, fired_by: tuple[str, ...], kind: str) -> None:
    armed = ArmedWatches()
    armed.answered(request_, found=found)

    assert not armed.fired(kind, "/b")[0]
    assert armed.fired(kind, "/a") == (kind in fired_by, [])
    assert armed.fired(kind, "/a") == (False, [])


def test_many_watches_are_armed_before_the_response() -> None:
    armed = ArmedWatches()
    armed.sent(SetWatches(("/a", "/b")))

    assert armed.fired(EventType.DELETED, "/a") == (True, [])
    armed.answered(SetWatches(("/a", "/b")), found=True)
    assert armed.fired(EventType.DELETED, "/a") == (False, [])
    assert armed.fired(EventType.CHANGED, "/b") == (True, [])


def test_recursive_watches_stay_and_can_be_nested() -> None:
    armed = ArmedWatches()
    for root in ("/a", "/a/b", "/ab", "/a"):
        armed.answered(WatchTree(root), found=True)
    armed.answered(WatchTree("/c"), found=False)

    for _ in range(2):
        assert armed.fired(EventType.CHANGED, "/a/b/c") == (False, ["/a", "/a/b"])
        assert armed.fired(EventType.DELETED, "/a") == (False, ["/a"])
        assert armed.fired(EventType.CREATED, "/abc") == (False, [])
        assert armed.fired(EventType.CREATED, "/c") == (False, [])
        # Events about children are reported for the children, not for their parent.
        assert armed.fired(EventType.CHILD, "/a") == (False, [])


def test_removing_a_watch_affects_one_path() -> None:
    armed = ArmedWatches()
    armed.answered(WatchTree("/a"), found=True)
    armed.answered(WatchTree("/a/b"), found=True)
    for path in ("/a", "/a/b"):
        armed.answered(GetData(path, True), found=True)
        armed.answered(GetChildren2(path, True), found=True)

    armed.answered(Unwatch("/a"), found=False)  # rejected
    armed.answered(Unwatch("/a/b"), found=True)

    assert armed.fired(EventType.DELETED, "/a/b") == (False, ["/a"])
    assert armed.fired(EventType.CHANGED, "/a") == (True, ["/a"])
    assert armed.fired(EventType.CHILD, "/a") == (True, [])


def test_watch_of_the_root_covers_all_nodes() -> None:
    assert is_within("/a", "/")
    assert is_within("/", "/")
    assert not is_within("/ab", "/a")
