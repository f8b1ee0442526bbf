"""Topics that were deleted since a client read them, created again or not.

A list of topics holds names. The name of a topic that was deleted and created again between two reads is in both lists,
so a list alone does not show the deletion. Each client records the topics that it read, by name and number, and which
of them were deleted, until its caller takes the record.
"""

from collections.abc import Mapping


class DeletedTopics:
    """The topics that one client has read, by name and number; a later topic of the same name has another number."""

    def __init__(self) -> None:
        self._read: dict[str, int] = {}
        self._deleted: set[str] = set()

    def record_read(self, topic: str, number: int) -> None:
        """Record that a topic was read."""
        if self._read.get(topic, number) != number:
            self._deleted.add(topic)
        self._read[topic] = number

    def compare(self, topics: Mapping[str, int]) -> None:
        """Record deletions by comparison with the numbers of all existing topics."""
        for name in [name for name, number in self._read.items() if topics.get(name) != number]:
            self.record_deletion(name)

    def record_deletion(self, topic: str, *, below: int | None = None) -> None:
        """Record that a topic was deleted.

        Args:
            below: only a topic with a lower number was, and a later one of that name may have been read since.
        """
        number = self._read.get(topic)
        if number is not None and (below is None or number < below):
            del self._read[topic]
            self._deleted.add(topic)

    def take(self) -> frozenset[str]:
        """Returns the deleted topics, each once."""
        deleted, self._deleted = frozenset(self._deleted), set()
        return deleted

    def forget(self, topic: str | None = None) -> None:
        """Discard the record of one topic, which the client itself deleted, or of all topics at the session's end."""
        if topic is None:
            self._read.clear()
            self._deleted.clear()
        else:
            self._read.pop(topic, None)
            self._deleted.discard(topic)
