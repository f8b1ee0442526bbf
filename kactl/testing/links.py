"""Links between nodes: messages with drawn delays, and faults that lose, hold or repeat them.

A link consists of channels, one for each direction. A channel runs a function on the receiving node some time after it
was sent. The sender chooses the function, and what happens if the message is lost. The simulated stores and the
simulated network use channels for requests and responses.
"""

import contextvars
import dataclasses
import functools
import random
from collections.abc import Callable
from typing import Final

from .loop import SimLoop
from .nodes import NODE, Node

# Matches every name in `Links.cut`.
ANY: Final = "*"

Deliver = Callable[[], object]


@dataclasses.dataclass(slots=True)
class Message:
    """A message on its way.

    Attributes:
        deliver: runs on the receiver.
        to: receiving node; None outside all nodes.
        lost: runs on the sender if the message is lost, after a drawn delay; None if the sender does not notice.
        sender: sending node.
    """

    deliver: Deliver
    to: Node | None
    lost: Deliver | None
    sender: Node | None


class Channel:
    """One direction of a link. Created by `Links.channel`.

    Attributes:
        ordered: messages arrive in the order in which they were sent, as on one connection.
        latency_ms: each message takes a uniform time between the two values.
        loss: probability that a message is lost.
        duplication: probability that a message is delivered twice; for channels that are not ordered.
    """

    def __init__(self, links: "Links", rng: random.Random, latency_ms: tuple[float, float], *, ordered: bool) -> None:
        self._links = links
        self._rng = rng
        self.ordered = ordered
        self.latency_ms = latency_ms
        self.loss = 0.0
        self.duplication = 0.0
        self.is_cut = False
        self._waiting: list[Message] = []  # sent during a cut
        self._held: list[Message] = []
        self._to_hold = 0
        self._kind_to_hold = ""  # empty for all
        self._earliest_s = 0.0  # earliest arrival of the next message, if the channel is ordered
        self._arrives_s = 0.0  # arrival of the last message without a delay
        self._delayed: list[Message] = []

    def send(self, deliver: Deliver, *, to: Node | None, lost: Deliver | None = None, kind: str = "") -> None:
        """Send a message from the current node.

        Args:
            deliver, to, lost: see `Message`.
            kind: of the message, for `hold`.
        """
        message = Message(deliver, to, lost, NODE.get())
        if self.loss and self._rng.random() < self.loss:
            self._lose(message)
        elif (self._to_hold and self._kind_to_hold in ("", kind)) or (self.ordered and self._held):
            self._to_hold = max(0, self._to_hold - 1)
            self._held.append(message)
        elif self.is_cut:
            self._waiting.append(message)
        else:
            self._carry(message)
            if self.duplication and not self.ordered and self._rng.random() < self.duplication:
                self._carry(message)

    def cut(self) -> None:
        """Let messages wait until `heal`. Those that have left the sender arrive."""
        self.is_cut = True

    def heal(self, *, deliver: bool = True) -> None:
        """End a cut.

        Args:
            deliver: deliver the messages that wait, as a connection that survived; otherwise they are lost.
        """
        self.is_cut = False
        waiting, self._waiting = self._waiting, []
        for message in waiting:
            self._carry(message) if deliver else self._lose(message)

    def hold(self, count: int = 1, *, kind: str = "") -> None:
        """Hold the next messages until `release`. On an ordered channel all later ones wait behind them.

        Args:
            kind: of the messages; empty for all.
        """
        self._to_hold += count
        self._kind_to_hold = kind

    def release(self) -> None:
        """Deliver the held messages, in the order in which they were sent."""
        self._to_hold = 0
        held, self._held = self._held, []
        for message in held:
            self._waiting.append(message) if self.is_cut else self._carry(message)

    def delay(self, delay_ms: float) -> None:
        """Let no message that is sent from now on arrive within this time. For ordered channels."""
        self._earliest_s = max(self._earliest_s, self._links.loop.now_s + delay_ms / 1000)

    def end_delay(self) -> None:
        """Let the messages that were delayed, and all later ones, arrive after the latency."""
        self._earliest_s = self._arrives_s
        delayed, self._delayed = self._delayed, []
        for message in delayed:
            self._carry(message)

    def _carry(self, message: Message) -> None:
        low, high = self.latency_ms
        # The same as `uniform`, for each message of a run.
        when_s = self._links.loop.now_s + (low + (high - low) * self._rng.random()) / 1000
        if self.ordered and self._earliest_s > max(when_s, self._arrives_s):
            self._delayed.append(message)
            self._links.call_at(self._earliest_s, functools.partial(self._arrive, message), on=message.to)
            return
        if self.ordered:
            when_s = self._earliest_s = self._arrives_s = max(when_s, self._earliest_s)
        self._links.call_at(when_s, message.deliver, on=message.to)

    def _arrive(self, message: Message) -> None:
        """Deliver a delayed message, if it has not been since the delay ended."""
        if any(message is other for other in self._delayed):
            self._delayed = [other for other in self._delayed if message is not other]
            message.deliver()

    def _lose(self, message: Message) -> None:
        if message.lost is not None:
            when_s = self._links.loop.now_s + 2 * self._rng.uniform(*self.latency_ms) / 1000
            self._links.call_at(when_s, message.lost, on=message.sender)


class Links:
    """All channels of a run, by the names of their nodes. Names outlive a node: its successor has the same links.

    Each channel draws from a stream of its own, named `KIND:SOURCE-TARGET`.

    Args:
        latency_ms: default latency of new channels, by kind of link. Kinds that are missing have no latency.
    """

    def __init__(self, loop: SimLoop, latency_ms: dict[str, tuple[float, float]] | None = None) -> None:
        self.loop = loop
        self.latency_ms = {} if latency_ms is None else latency_ms
        self._channels: dict[tuple[str, str, str], Channel] = {}
        self._cuts: dict[tuple[str, str, str], None] = {}
        self._contexts: dict[Node | None, contextvars.Context] = {}

    def channel(self, kind: str, source: str, target: str, *, ordered: bool = True) -> Channel:
        """Returns the channel of a kind from one node to another; always the same one.

        Args:
            kind: purpose of the link, for example `store` or `network`.
            ordered: of a new channel.
        """
        key = (kind, source, target)
        channel = self._channels.get(key)
        if channel is None:
            rng = self.loop.streams[f"{kind}:{source}-{target}"]
            channel = Channel(self, rng, self.latency_ms.get(kind, (0.0, 0.0)), ordered=ordered)
            channel.is_cut = any(_matches(cut, key) for cut in self._cuts)
            self._channels[key] = channel
        return channel

    def cut(self, source: str, target: str, *, kind: str = ANY, both: bool = True) -> None:
        """Cut the channels from one node to another, the later ones included. `ANY` stands for all nodes or kinds.

        Args:
            both: also cut the way back.
        """
        for pattern in self._patterns(source, target, kind, both=both):
            self._cuts[pattern] = None
            for key, channel in self._channels.items():
                if _matches(pattern, key):
                    channel.cut()

    def heal(
        self, source: str = ANY, target: str = ANY, *, kind: str = ANY, both: bool = True, deliver: bool = True
    ) -> None:
        """End cuts between two nodes, or all cuts.

        Args:
            deliver: deliver the messages that wait; otherwise they are lost.
        """
        ended = self._patterns(source, target, kind, both=both)
        self._cuts = {cut: None for cut in self._cuts if not any(_matches(pattern, cut) for pattern in ended)}
        for key, channel in self._channels.items():
            is_over = any(_matches(pattern, key) for pattern in ended)
            if channel.is_cut and is_over and not any(_matches(cut, key) for cut in self._cuts):
                channel.heal(deliver=deliver)

    def select(self, source: str = ANY, target: str = ANY, *, kind: str = ANY) -> list[Channel]:
        """Returns the existing channels from one node to another, in the order of their creation."""
        return [channel for key, channel in self._channels.items() if _matches((kind, source, target), key)]

    def limit_latency(self, kind: str, high_ms: float) -> None:
        """Let no channel of a kind be slower than this from now on, the later ones included."""
        for channel in self.select(kind=kind):
            channel.latency_ms = _limited(channel.latency_ms, high_ms)
        self.latency_ms[kind] = _limited(self.latency_ms.get(kind, (0.0, 0.0)), high_ms)

    def call_at(self, when_s: float, callback: Deliver, *, on: Node | None) -> None:
        """Run a function on a node at a time of the loop, whatever the current node and its clock."""
        context = self._contexts.get(on)
        if context is None:
            context = self._contexts[on] = contextvars.Context()
            context.run(NODE.set, on)
        self.loop.call_at_now_s(when_s, callback, context)

    def _patterns(self, source: str, target: str, kind: str, *, both: bool) -> list[tuple[str, str, str]]:
        return [(kind, source, target), (kind, target, source)] if both else [(kind, source, target)]


def _limited(latency_ms: tuple[float, float], high_ms: float) -> tuple[float, float]:
    low, high = latency_ms
    return min(low, high_ms), min(high, high_ms)


def _matches(pattern: tuple[str, str, str], key: tuple[str, str, str]) -> bool:
    return all(part in (ANY, value) for part, value in zip(pattern, key, strict=True))
