"""Content of the file as values of the model, for the checks and selectors of a simulated cluster."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from kactl.model import NO_EPOCH, Assignment, ControllerRecord, Leadership, TopicPartition, TopicRef

from .content import Content, Entry


class SqliteStored:
    """Content of the file at this moment; see `kactl.testing.stored.Stored`.

    Args:
        read: returns the content.
    """

    def __init__(self, read: Callable[[], Content]) -> None:
        self._read = read

    def _values(self, kind: str) -> dict[str, Entry]:
        """Returns the entries of a kind by the rest of their keys, in order."""
        prefix, content = f"{kind}/", self._read()
        return {key.removeprefix(prefix): content[key] for key in sorted(content) if key.startswith(prefix)}

    def topics(self) -> dict[str, TopicRef]:
        return {
            name: TopicRef(name, bytes.fromhex(entry.value["id"])) for name, entry in self._values("topics").items()
        }

    def assignments(self) -> dict[TopicPartition, Assignment]:
        return {
            TopicPartition(topic, int(partition)): Assignment(*map(tuple, lists))
            for topic, entry in self._values("topics").items()
            for partition, lists in entry.value["partitions"].items()
        }

    def leaderships(self) -> dict[TopicPartition, Leadership]:
        found, assigned = {}, self.assignments()
        for key, entry in self._values("leadership").items():
            topic, _, partition = key.rpartition("/")
            name = TopicPartition(topic, int(partition))
            if name in assigned:
                found[name] = _leadership(entry)
        return found

    def registrations(self) -> dict[int, int]:
        return {int(broker): entry.value["epoch"] for broker, entry in self._values("brokers").items()}

    def controller(self) -> ControllerRecord | None:
        entry = self._read().get("controller")
        return None if entry is None else ControllerRecord(entry.value["id"], entry.value["epoch"], 0)

    @property
    def controller_epoch(self) -> int:
        entry = self._read().get("epoch")
        return NO_EPOCH if entry is None else int(entry.value["epoch"])

    def deletions(self) -> Collection[str]:
        return list(self._values("deletions"))

    def requests(self) -> tuple[str, ...]:
        names = {"requests/reassignment": "reassignment", "requests/preferred": "preferred election"}
        return tuple(name for key, name in names.items() if key in self._read())

    def config(self, topic: str) -> Mapping[str, str]:
        entry = self._read().get(f"configs/{topic}")
        return {} if entry is None else dict(entry.value)


def _leadership(entry: Entry) -> Leadership:
    value: dict[str, Any] = entry.value
    return Leadership(
        value["leader"],
        value["leader_epoch"],
        tuple(value["isr"]),
        entry.version,
        value["controller_epoch"],
        value["recovering"],
    )
