"""Guards for object stores: names in the order of tokens, and replacement under a condition."""

from typing import Final, Protocol

import msgspec

from kactl.model.errors import ActionTimedOut, StaleToken
from kactl.participant.leases.leader import Leader

# Of the metadata: the token, and the topic that it belongs to.
TOKEN_KEY: Final = "kactl-token"
TOPIC_KEY: Final = "kactl-topic-id"
# A condition fails once for each other writer in between. There is one leader, and seldom another late one.
_TRIES_MAX: Final = 10


def object_key(leader: Leader, name: str) -> str:
    """Returns a name that begins with the token, so that a listing is in the order of the leaders.

    Readers use the last name only: a late object of an earlier leader is listed before it.

    Raises:
        LeadershipLost: the lease has ended.
    """
    leader.check()
    return f"{leader.token.controller_epoch:010}.{leader.token.leader_epoch:010}/{name}"


class ObjectHead(msgspec.Struct, frozen=True):
    """What an object store knows of an object besides its content."""

    etag: str
    metadata: dict[str, str]


class ObjectStore(Protocol):
    """Client of an object store that replaces an object only if its ETag is the expected one.

    A store without such a condition cannot be guarded in this way.
    """

    async def head(self, key: str) -> ObjectHead | None:
        """Returns the present version of an object; None if there is none."""

    async def put(self, key: str, content: bytes, *, metadata: dict[str, str], if_match: str | None) -> bool:
        """Replace an object if its ETag is `if_match`, or create it if that is None and there is no object.

        Returns:
            whether it was written; False if the condition was not met.
        """


class PutIfMatch:
    """Writes objects that only the latest leader may replace.

        await PutIfMatch(store).put(leader, "state.json", content)

    The token is in the metadata of each object.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def put(self, leader: Leader, key: str, content: bytes) -> None:
        """Replace an object.

        Raises:
            LeadershipLost: the lease has ended; nothing was written.
            StaleToken: a later leader has written the object.
            ActionTimedOut: other writers were faster each time.
        """
        token, topic = leader.token, leader.token.topic_id.hex()
        metadata = {TOKEN_KEY: str(token.as_int()), TOPIC_KEY: topic}
        for _ in range(_TRIES_MAX):
            leader.check()
            head = await self._store.head(key)
            if head is not None and head.metadata.get(TOPIC_KEY) == topic:
                stored = int(head.metadata[TOKEN_KEY])
                if stored > token.as_int():
                    raise StaleToken(key, ours=str(token), highest=f"{stored >> 32}.{stored & 0xFFFF_FFFF}")
            etag = None if head is None else head.etag
            if await self._store.put(key, content, metadata=metadata, if_match=etag):
                return
        raise ActionTimedOut(f"replacing {key}, which {_TRIES_MAX} other writes have preceded,", 0)
