"""The guards of object stores, against a store with ETags in memory."""

import anyio
import anyio.lowlevel
import pytest

from kactl.fencing import ObjectHead, PutIfMatch, object_key
from kactl.model.errors import ActionTimedOut, LeadershipLost, StaleToken

from .leaders import OTHER_ID, leader

pytestmark = pytest.mark.anyio


class Bucket:
    """Objects with ETags.

    Attributes:
        between: called before each put.
    """

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, ObjectHead]] = {}
        self.between = anyio.lowlevel.checkpoint
        self._versions = 0

    async def head(self, key: str) -> ObjectHead | None:
        return self.objects[key][1] if key in self.objects else None

    async def put(self, key: str, content: bytes, *, metadata: dict[str, str], if_match: str | None) -> bool:
        await self.between()
        present = self.objects[key][1].etag if key in self.objects else None
        if present != if_match:
            return False
        self._versions += 1
        self.objects[key] = content, ObjectHead(f"v{self._versions}", metadata)
        return True


def test_names_are_listed_in_the_order_of_the_tokens() -> None:
    keys = [object_key(leader(*epochs), "state") for epochs in ((1, 5), (1, 12), (2, 0), (10, 0))]

    assert keys == sorted(keys)
    assert keys[0] == "0000000001.0000000005/state"


def test_leader_without_a_lease_gets_no_name() -> None:
    with pytest.raises(LeadershipLost):
        object_key(leader(1, 5, valid=False), "state")


async def test_object_of_a_later_leader_is_not_replaced() -> None:
    bucket = Bucket()
    guard = PutIfMatch(bucket)
    for epochs in ((1, 5), (1, 5), (1, 6)):
        await guard.put(leader(*epochs), "state", str(epochs).encode())

    with pytest.raises(StaleToken, match=r"1\.5 is behind 1\.6"):
        await guard.put(leader(1, 5), "state", b"late")

    assert bucket.objects["state"][0] == b"(1, 6)"
    await guard.put(leader(1, 0, topic_id=OTHER_ID), "state", b"of another topic")


async def test_write_that_is_delayed_after_its_check_is_rejected() -> None:
    """The condition fails, because the later leader has replaced the object meanwhile."""
    bucket = Bucket()
    guard = PutIfMatch(bucket)
    await guard.put(leader(1, 5), "state", b"first")

    async def later_leader() -> None:
        bucket.between = anyio.lowlevel.checkpoint
        await guard.put(leader(1, 6), "state", b"second")

    bucket.between = later_leader
    with pytest.raises(StaleToken):
        await guard.put(leader(1, 5), "state", b"late")

    assert bucket.objects["state"][0] == b"second"


async def test_leader_without_a_lease_writes_nothing() -> None:
    bucket = Bucket()

    with pytest.raises(LeadershipLost):
        await PutIfMatch(bucket).put(leader(1, 5, valid=False), "state", b"late")

    assert bucket.objects == {}


async def test_store_that_refuses_for_ever_is_given_up() -> None:
    class Refusing(Bucket):
        async def put(self, key: str, content: bytes, *, metadata: dict[str, str], if_match: str | None) -> bool:
            return False

    with pytest.raises(ActionTimedOut):
        await PutIfMatch(Refusing()).put(leader(1, 5), "state", b"x")
