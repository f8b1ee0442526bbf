"""How a topic that was deleted and created again between two looks at the list of topics is seen by who follows it.

The list holds names, and the name is there both times. But the watch of the topic's node tells of the deletion, or a
read finds a node that was created later than the one before. So the next look leaves the name out, and one more is
asked for at once: whoever follows the list forgets the old topic, and then learns of the new one.
"""

from collections.abc import Collection


class TopicList:
    """The nodes of topics that were read under a watch, and those of them that are gone."""

    def __init__(self) -> None:
        self._created: dict[str, int] = {}
        self._gone: set[str] = set()

    def saw(self, topic: str, created: int) -> None:
        """A topic's node was read; `created` is the transaction that made it."""
        if self._created.get(topic, created) != created:
            self._gone.add(topic)
        self._created[topic] = created

    def vanished(self, topic: str) -> None:
        """A topic's node was deleted."""
        if self._created.pop(topic, None) is not None:
            self._gone.add(topic)

    def show(self, listed: Collection[str]) -> tuple[list[str], bool]:
        """The names to show, sorted, and whether to ask for another look."""
        again = self._gone.intersection(listed)
        self._gone.clear()
        return sorted(set(listed) - again), bool(again)

    def forget(self, topic: str | None = None) -> None:
        """The client knows itself that a topic is gone, or begins anew with all of them."""
        if topic is None:
            self._created.clear()
            self._gone.clear()
        else:
            self._created.pop(topic, None)
            self._gone.discard(topic)
