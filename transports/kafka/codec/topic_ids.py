"""Look-up of topics by id, thousands at a time: responses contain topic ids, requests topic numbers."""

import threading
import weakref
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from kactl.decide.state.rows import RowNumbers
from kactl.decide.state.topics import AllTopics, Topics
from kactl.model import TopicRef

ID_SIZE: Final = 16

# An odd number without a pattern, so that the keys of consecutive halves do not collide.
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)

# [n, 2], the two halves of each id. Their order does not matter, because ids are only compared.
Ids = npt.NDArray[np.uint64]


class TopicIdCache:
    """Cache of topic ids, for the lifetime of the table that numbers the topics. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: weakref.WeakKeyDictionary[AllTopics, tuple[int, Ids]] = weakref.WeakKeyDictionary()

    def of(self, topics: Sequence[TopicRef]) -> Ids:
        """Returns the ids of `topics`, in their order."""
        if not isinstance(topics, Topics):
            return _ids(topics)
        every = topics.all
        with self._lock:
            replaced, ids = self._kept.get(every, (every.replaced, _ids(())))
            if replaced != every.replaced:
                replaced, ids = every.replaced, _ids(())
            if len(ids) < len(every):
                ids = np.concatenate([ids, _ids(every.since(len(ids)))])
            self._kept[every] = replaced, ids
        return ids[topics.numbers]


def halves(ids: bytes) -> Ids:
    """Returns the halves of concatenated ids."""
    return np.frombuffer(ids, np.uint64).reshape(-1, 2)


def positions_of(wanted: Ids, among: Ids) -> RowNumbers | None:
    """Returns the position of each of `wanted` in `among`.

    Returns None if one of them is missing, or if two ids of `among` have the same key: the caller then has to compare
    the ids one by one.
    """
    if not len(wanted) or not len(among):
        return None
    keys = _keys(among)
    order = np.argsort(keys)
    keys = keys[order]
    if (keys[1:] == keys[:-1]).any():
        return None
    positions = order[np.minimum(np.searchsorted(keys, _keys(wanted)), len(among) - 1)]
    return positions if np.array_equal(among[positions], wanted) else None


def _keys(ids: Ids) -> npt.NDArray[np.uint64]:
    """Returns one number for each id; two ids rarely have the same one."""
    keys: npt.NDArray[np.uint64] = ids[:, 0] * _SPREAD + ids[:, 1]
    return keys


def _ids(refs: Sequence[TopicRef]) -> Ids:
    return halves(b"".join(ref.id for ref in refs))
