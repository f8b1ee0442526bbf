"""Topics that were deleted since a client read them, whether or not they were created again.

A list of topics holds names. The name of a topic that was deleted and created again between two reads is in both, so
that the list alone cannot show it. Each client notes which topic it read under a name, and what is gone of these, until
its caller takes the note.
"""

from collections.abc import Mapping


class DeletedTopics:
    """The topics that one client has read, each with the number that tells it from a later one of the same name."""

    def __init__(self) -> None:
        self._read: dict[str, int] = {}
        self._deleted: set[str] = set()

    def saw(self, topic: str, number: int) -> None:
        """A topic was read."""
        if self._read.get(topic, number) != number:
            self._deleted.add(topic)
        self._read[topic] = number

    def compare(self, topics: Mapping[str, int]) -> None:
        """All topics that there are now."""
        for name in [name for name, number in self._read.items() if topics.get(name) != number]:
            self.vanished(name)

    def vanished(self, topic: str) -> None:
        """A topic was deleted."""
        if self._read.pop(topic, None) is not None:
            self._deleted.add(topic)

    def take(self) -> frozenset[str]:
        """The topics that were deleted; each is returned once."""
        deleted, self._deleted = frozenset(self._deleted), set()
        return deleted

    def forget(self, topic: str | None = None) -> None:
        """The client knows itself that a topic is gone, or begins anew with all of them."""
        if topic is None:
            self._read.clear()
            self._deleted.clear()
        else:
            self._read.pop(topic, None)
            self._deleted.discard(topic)
