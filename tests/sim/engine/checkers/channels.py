"""Order of the requests of one channel: INV-47."""

import collections
import dataclasses

from kactl.testing.history import Event
from kactl.testing.violations import Checker, Violation

from .stored import is_zero, topic_writes


@dataclasses.dataclass
class _Queue:
    waiting: collections.deque[int] = dataclasses.field(default_factory=collections.deque)
    in_flight: tuple[int, Event] | None = None
    # The last LeaderAndIsr of each partition, by its leader epoch; of each life of a topic that has ids.
    led: dict[tuple[str, str], tuple[int, Event]] = dataclasses.field(default_factory=dict)


class Channels(Checker):
    """Each request is attempted in its turn, and again until it is answered. Requests that wait may be merged if each
    replica still receives the same sequence of starts and stops. Leader epochs never fall in the life of a topic."""

    kinds = ("store.commit", "req.enqueue", "req.replace", "req.attempt", "req.drop")
    invariants = ("INV-47",)

    def __init__(self) -> None:
        self._queues: dict[int, _Queue] = {}
        self._requests: dict[int, tuple[str, list[str]]] = {}  # type and partitions
        self._stored: set[str] = set()  # topics
        self._lives: dict[str, int] = {}  # how often each topic was created

    def check(self, event: Event) -> Violation | None:
        if event.kind == "store.commit":
            self._created(event)
            return None
        fields = event.fields
        queue = self._queues.setdefault(fields["channel"], _Queue())
        if event.kind == "req.enqueue":
            queue.waiting.append(fields["request"])
            self._requests[fields["request"]] = (fields["what"], fields["partitions"])
            return self._fallen(queue, event)
        if event.kind == "req.drop":
            for request in queue.waiting:
                del self._requests[request]
            del self._queues[fields["channel"]]
            return None
        text = self._replaced(queue, event) if event.kind == "req.replace" else self._attempted(queue, event)
        contradicts = queue.in_flight[1] if queue.in_flight is not None else None
        return Violation("INV-47", text, event=event, contradicts=contradicts) if text else None

    def _created(self, event: Event) -> None:
        """Count the lives of topics: without topic ids they cannot be told apart."""
        if event.fields["outcome"] != "ok":
            return
        for topic, value in topic_writes(event):
            if value is None:
                self._stored.discard(topic)
            elif topic not in self._stored:
                self._stored.add(topic)
                self._lives[topic] = self._lives.get(topic, 0) + 1

    def _fallen(self, queue: _Queue, event: Event) -> Violation | None:
        """Returns a violation if a partition has a lower leader epoch than before.

        A topic that was created again has another id. If it has none, its epochs are not compared. A stop for the
        deletion of a topic has no epoch.
        """
        fields = event.fields
        what = fields["what"]
        columns = zip(fields["partitions"], fields["topic_ids"], fields["leader_epochs"], strict=True)
        for partition, topic_id, epoch in columns:
            if is_zero(topic_id) and self._lives.get(partition.rpartition("-")[0], 0) > 1:
                continue
            name = (partition, topic_id)
            last, before = queue.led.get(name, (epoch, event))
            if 0 <= epoch < last:
                text = f"{partition}: {what} under leader epoch {epoch} follows LeaderAndIsr under {last}"
                return Violation("INV-47", text, event=event, contradicts=before)
            if what == "LeaderAndIsr":
                queue.led[name] = (epoch, event)
            elif epoch < 0:
                queue.led.pop(name, None)
        return None

    def _replaced(self, queue: _Queue, event: Event) -> str:
        before, waiting = event.fields["before"], list(queue.waiting)
        # A channel takes a request from its queue before it waits for the gate. It sends that request first.
        taken = waiting[:1] if queue.in_flight is None and before == waiting[1:] else []
        if [*taken, *before] != waiting:
            return f"requests {before} are replaced, and {waiting} wait"
        old = [self._requests.pop(request) for request in before]
        new = [(what, partitions) for _, what, partitions in event.fields["after"]]
        queue.waiting = collections.deque([*taken, *(request for request, *_ in event.fields["after"])])
        for request, what, partitions in event.fields["after"]:
            self._requests[request] = (what, partitions)
        if any(what == "UpdateMetadata" for what, _ in old) and all(what != "UpdateMetadata" for what, _ in new):
            return "an UpdateMetadata that waited is dropped"
        was, now = _sequences(old), _sequences(new)
        for name in sorted(was.keys() | now.keys()):
            if was.get(name) != now.get(name):
                return f"{name}: {was.get(name)} waited, and is replaced by {now.get(name)}"
        return ""

    def _attempted(self, queue: _Queue, event: Event) -> str:
        request, outcome = event.fields["request"], event.fields["outcome"]
        if outcome == "answered":
            queue.in_flight = None
            self._requests.pop(request, None)
            return ""
        if outcome == "failed":
            return ""
        if queue.in_flight is not None:
            earlier = queue.in_flight[0]
            return "" if request == earlier else f"request {request} is sent before request {earlier} is answered"
        if not queue.waiting or queue.waiting[0] != request:
            return f"request {request} is sent, and {list(queue.waiting)[:5]} wait"
        queue.waiting.popleft()
        queue.in_flight = (request, event)
        return ""


def _sequences(requests: list[tuple[str, list[str]]]) -> dict[str, list[str]]:
    """Returns the types of requests that name each partition, in order, without repetitions."""
    sequences: dict[str, list[str]] = {}
    for what, partitions in requests:
        for name in partitions:
            sequence = sequences.setdefault(name, [])
            if not sequence or sequence[-1] != what:
                sequence.append(what)
    return sequences
