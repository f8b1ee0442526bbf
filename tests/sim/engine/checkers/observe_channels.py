"""Requests of one channel of a controller: recorded by functions that are wrapped around its own."""

import itertools
from collections.abc import Callable
from typing import Any, Final

from kactl.actors.channel import Channel, Outgoing
from kactl.decide.messages.control import LeaderAndIsr, ReplicaReset, Request, StateSent, UpdateMetadata
from kactl.model.errors import KactlError
from kactl.testing.history import History

# Paths from a channel to what is wrapped or read.
WRAPPED_CHANNEL: Final = ("inbox.put", "_coalesced", "_numbered", "_connection.deliver", "_connection.close")


def replace(owner: Any, **attributes: Any) -> None:
    """Set attributes of one object; its class stays as it is."""
    for name, value in attributes.items():
        setattr(owner, name, value)


class ChannelRecorder:
    """Records the requests of one channel. Requests are told apart by identity: each is kept until its answer."""

    def __init__(
        self, history: History, channel: Channel, node: str, number: int, requests: "itertools.count[int]"
    ) -> None:
        self._history = history
        self._node = node
        self._number = number
        self._requests = requests
        self._channel = channel
        self._waiting: list[tuple[Request, int]] = []
        put, coalesced, numbered = channel.inbox.put, channel._coalesced, channel._numbered

        def putting(message: Outgoing, *args: Any) -> None:
            put(message, *args)
            self._enqueued(message.request)

        def coalescing(waiting: Any) -> Any:
            left = coalesced(waiting)
            self._replaced([entry.message.request for entry in waiting], [entry.message.request for entry in left])
            return left

        def numbering(request: Request) -> Request:
            sent = numbered(request)
            self._waiting = [(sent if known is request else known, number) for known, number in self._waiting]
            return sent

        replace(channel.inbox, put=putting)
        replace(
            channel,
            _coalesced=coalescing,
            _numbered=numbering,
            _connection=_Connection(channel._connection, self._attempted),
        )

    def _record(self, kind: str, **fields: Any) -> None:
        self._history.record(kind, node=self._node, channel=self._number, **fields)

    def _number_of(self, request: Request) -> int:
        for known, number in self._waiting:
            if known is request:
                return number
        return 0

    def _enqueued(self, request: Request) -> None:
        self._waiting.append((request, next(self._requests)))
        self._record(
            "req.enqueue",
            broker=self._channel.broker.id,
            broker_epoch=self._channel.broker.epoch,
            request=self._waiting[-1][1],
            what=type(request).__name__,
            controller_epoch=request.controller_epoch,
            partitions=_partitions(request),
            leader_epochs=_leader_epochs(request),
            topic_ids=_topic_ids(request),
        )

    def _replaced(self, before: list[Request], after: list[Request]) -> None:
        if len(before) == len(after) and all(old is new for old, new in zip(before, after, strict=True)):
            return
        numbers = [self._number_of(request) for request in before]
        kept = [entry for entry in self._waiting if not any(entry[0] is request for request in before)]
        replaced = [(request, self._number_of(request) or next(self._requests)) for request in after]
        self._waiting = kept + replaced
        shown = [(number, type(request).__name__, _partitions(request)) for request, number in replaced]
        self._record("req.replace", before=numbers, after=shown)

    def _attempted(self, request: Request, outcome: str) -> None:
        number = self._number_of(request)
        if outcome == "answered":
            position = next(index for index, (known, _) in enumerate(self._waiting) if known is request)
            del self._waiting[position]
        self._record("req.attempt", request=number, outcome=outcome)


class _Connection:
    """A connection that reports its attempts."""

    def __init__(self, connection: Any, attempted: Callable[[Request, str], None]) -> None:
        self._connection = connection
        self._attempted = attempted

    async def deliver(self, request: Request) -> Any:
        self._attempted(request, "begin")
        try:
            response = await self._connection.deliver(request)
        except KactlError:
            self._attempted(request, "failed")
            raise
        self._attempted(request, "answered")
        return response

    async def close(self) -> None:
        await self._connection.close()


def _columns(request: Request) -> Any:
    """Returns the object with the columns of a request; None if no partition is to be recorded."""
    if isinstance(request, UpdateMetadata | StateSent | ReplicaReset):
        return None
    return request.states if isinstance(request, LeaderAndIsr) else request


def _partitions(request: Request) -> list[str]:
    columns = _columns(request)
    if columns is None:
        return []
    topics = [topic.name for topic in columns.topics]
    pairs = zip(columns.topic.tolist(), columns.partition.tolist(), strict=True)
    return [f"{topics[topic]}-{partition}" for topic, partition in pairs]


def _leader_epochs(request: Request) -> list[int]:
    """Returns the leader epoch of each partition of `_partitions`."""
    columns = _columns(request)
    if columns is None:
        return []
    epochs: list[int] = columns.leader_epoch.tolist()
    return epochs


def _topic_ids(request: Request) -> list[str]:
    """Returns the topic id of each partition of `_partitions`."""
    columns = _columns(request)
    if columns is None:
        return []
    ids = [topic.id.hex() for topic in columns.topics]
    return [ids[topic] for topic in columns.topic.tolist()]
