"""Topic headers: the bytes before a topic's partitions, its name and in newer versions its id. Encoded once per topic.

They are stored in one array of bytes by the topics' numbers, so that the headers of 10,000 topics are copied without a
Python loop.
"""

import dataclasses
import threading
import weakref
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kactl.decide.state.topics import AllTopics, Topics
from kactl.model import TopicRef

from .primitive import string

Sizes = npt.NDArray[np.int64]
Content = npt.NDArray[np.uint8]


@dataclasses.dataclass(frozen=True, slots=True)
class TopicHeaders:
    """Headers of some topics: `content[begin[i]:begin[i] + size[i]]`."""

    content: Content
    begin: Sizes
    size: Sizes

    def __len__(self) -> int:
        return len(self.size)

    def take(self, which: npt.NDArray[np.int32]) -> "TopicHeaders":
        return TopicHeaders(self.content, self.begin[which], self.size[which])


@dataclasses.dataclass(slots=True)
class _Kept:
    """The headers of the topics of one table, as far as they have been used."""

    replaced: int
    headers: TopicHeaders


class TopicHeaderCache:
    """Cache of headers by topic, for the lifetime of the table that numbers the topics. Thread-safe."""

    def __init__(self, *, ids: bool) -> None:
        self._ids = ids
        self._lock = threading.Lock()
        self._kept: weakref.WeakKeyDictionary[AllTopics, _Kept] = weakref.WeakKeyDictionary()

    def of(self, topics: Sequence[TopicRef]) -> TopicHeaders:
        """Returns the headers of `topics`, in their order."""
        if not isinstance(topics, Topics):
            return self._made(list(topics))
        with self._lock:
            cached = self._kept.get(topics.all)
            if cached is None or cached.replaced != topics.all.replaced:
                cached = self._kept[topics.all] = _Kept(topics.all.replaced, self._made([]))
            if len(cached.headers) < len(topics.all):
                cached.headers = _joined(cached.headers, self._made(topics.all.since(len(cached.headers))))
            return cached.headers.take(topics.numbers)

    def _made(self, refs: list[TopicRef]) -> TopicHeaders:
        encoded = [string(ref.name) + ref.id if self._ids else string(ref.name) for ref in refs]
        size = np.fromiter(map(len, encoded), np.int64, len(encoded))
        return TopicHeaders(np.frombuffer(b"".join(encoded), np.uint8), np.cumsum(size) - size, size)


def _joined(first: TopicHeaders, second: TopicHeaders) -> TopicHeaders:
    return TopicHeaders(
        np.concatenate([first.content, second.content]),
        np.concatenate([first.begin, second.begin + len(first.content)]),
        np.concatenate([first.size, second.size]),
    )
