"""Leaders of an earlier topic of the same name that write its ISR to the store.

Below protocol level 2.7 leaders write ISRs themselves, and topics have no ids. A request that the controller had given
up may start a leader again after the deletion of its topic. When the name is used again and the next topic has the same
partition epoch, the store accepts the write of that leader. As in Kafka.
"""

from typing import Any, Final

from kactl.testing.history import Event

from .stored import Stored, topic_writes

KINDS: Final = ("store.commit", "req.send", "role.apply", "role.stop")


class EarlierLeaders:
    """Follows the leaders of all partitions, and the creations of topics."""

    def __init__(self) -> None:
        self._last_message = 0
        # Of each topic, the number of the event that created it last, and the last message that was sent before.
        self._created: dict[str, tuple[int, int]] = {}
        # Message that started each leader, and its leader epoch; by broker, topic and partition.
        self._leads: dict[tuple[int, str, str], tuple[int, int]] = {}

    def add(self, event: Event, stored: Stored) -> None:
        """Take note of an event of KINDS.

        Args:
            stored: the entries before the event.
        """
        fields = event.fields
        if event.kind == "req.send":
            self._last_message = fields["message"]
        elif event.kind == "store.commit":
            for topic, value in topic_writes(event):
                if value is not None and stored.value(f"topics/{topic}") is None:
                    self._created[topic] = (event.seq, self._last_message)
        elif fields["outcome"] == "applied":
            key = (fields["broker"], fields["topic"], str(fields["partition"]))
            self._leads.pop(key, None)
            if fields.get("role") == "leader":
                self._leads[key] = (fields["message"], fields["leader_epoch"])

    def has_written(self, event: Event, topic: str, partition: str, value: dict[str, Any]) -> bool:
        """Whether a commit is the write of such a leader, with its own leadership.

        The write was sent before the present topic was created, or the request that started the leader was.
        """
        leader = value["leader"]
        if event.fields["operation"] != "write_isr" or event.fields["client"] != f"broker {leader}":
            return False
        created, last_message = self._created.get(topic, (-1, -1))
        if event.fields["sent"] <= created:
            return True
        message, leader_epoch = self._leads.get((leader, topic, partition), (last_message + 1, -1))
        return message <= last_message and leader_epoch == value["leader_epoch"]
