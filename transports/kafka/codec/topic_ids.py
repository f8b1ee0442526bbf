"""Topics by their ids, looked up thousands at a time: an answer names by id what the request named by number."""

import threading
import weakref
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from kactl.model import TopicRef
from kactl.state.rows import RowNumbers
from kactl.state.topics import AllTopics, Topics

ID_SIZE: Final = 16

# An odd number without a pattern, so that halves which count upwards do not add up to the same.
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)

# [n, 2], the two halves of each id. Which of them is the higher does not matter: they are only compared.
Ids = npt.NDArray[np.uint64]


class TopicIdCache:
    """The ids of topics, for as long as the table lives that numbers them. May be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: weakref.WeakKeyDictionary[AllTopics, tuple[int, Ids]] = weakref.WeakKeyDictionary()

    def of(self, topics: Sequence[TopicRef]) -> Ids:
        """The ids of `topics`, in their order."""
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
    """Ids that stand one behind the other."""
    return np.frombuffer(ids, np.uint64).reshape(-1, 2)


def positions_of(wanted: Ids, among: Ids) -> RowNumbers | None:
    """Where each of `wanted` stands in `among`.

    None if one of them does not, or if two of `among` cannot be told apart here: somebody has to look at them one by
    one then.
    """
    if not len(wanted) or not len(among):
        return None
    keys = _keys(among)
    order = np.argsort(keys)
    keys = keys[order]
    if (keys[1:] == keys[:-1]).any():
        return None
    found = order[np.minimum(np.searchsorted(keys, _keys(wanted)), len(among) - 1)]
    return found if np.array_equal(among[found], wanted) else None


def _keys(ids: Ids) -> npt.NDArray[np.uint64]:
    """One number for each id, hardly ever the same for two of them."""
    keys: npt.NDArray[np.uint64] = ids[:, 0] * _SPREAD + ids[:, 1]
    return keys


def _ids(refs: Sequence[TopicRef]) -> Ids:
    return halves(b"".join(ref.id for ref in refs))
