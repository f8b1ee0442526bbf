"""How a topic that was deleted and created again between two looks at the list of topics is seen by who follows it.

The list holds names, and the name is there both times. So the first look after it leaves the name out, and another look
is asked for at once: whoever follows the list forgets the old topic, and then learns of the new one.
"""

from collections.abc import Mapping


class Listing:
    """The topics that one client was shown, with the number that tells a topic from a later one of the same name."""

    def __init__(self) -> None:
        self._shown: dict[str, int] = {}

    def show(self, topics: Mapping[str, int]) -> tuple[list[str], bool]:
        """The names to show, sorted, and whether to ask for another look."""
        shown = self._shown
        again = {name for name in shown.keys() & topics.keys() if shown[name] != topics[name]}
        self._shown = {name: number for name, number in topics.items() if name not in again}
        return sorted(self._shown), bool(again)

    def forget(self, topic: str | None = None) -> None:
        """The client knows itself that a topic is gone, or begins anew with all of them."""
        if topic is None:
            self._shown.clear()
        else:
            self._shown.pop(topic, None)
