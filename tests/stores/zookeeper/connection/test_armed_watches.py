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
def test_a_single_watch_fires_once(request_: object, found: bool, fired_by: tuple[str, ...], kind: str) -> None:
    armed = ArmedWatches()
    armed.answered(request_, found=found)

    assert not armed.fired(kind, "/b")[0]
    assert armed.fired(kind, "/a") == (kind in fired_by, [])
    assert armed.fired(kind, "/a") == (False, [])


def test_many_are_armed_before_the_answer() -> None:
    armed = ArmedWatches()
    armed.sent(SetWatches(("/a", "/b")))

    assert armed.fired(EventType.DELETED, "/a") == (True, [])
    armed.answered(SetWatches(("/a", "/b")), found=True)
    assert armed.fired(EventType.DELETED, "/a") == (False, [])
    assert armed.fired(EventType.CHANGED, "/b") == (True, [])


def test_trees_stay_and_may_stand_within_each_other() -> None:
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


def test_what_is_unwatched_is_just_that_path() -> None:
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


def test_the_root_of_all_has_everything_below_it() -> None:
    assert is_within("/a", "/")
    assert is_within("/", "/")
    assert not is_within("/ab", "/a")
