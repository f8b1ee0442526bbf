"""Simulated brokers that apply the controllers' requests and check them.

Unlike `tests.support.controller_harness.Brokers`, which only record requests, these keep a view of the cluster, reject
stale controllers, follow and lead. They can be slow or silent, lose responses, and have log directories that fail. A
request that no broker may ever receive adds a complaint, which the test reads.
"""

import dataclasses
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kactl.clock import Clock
from kactl.errors import BrokerUnreachable, ErrorCode
from kactl.messages.control import (
    LeaderAndIsr,
    LeaderAndIsrResponse,
    PartitionErrors,
    Request,
    Response,
    StopReplica,
    StopReplicaResponse,
    UpdateMetadata,
    UpdateMetadataResponse,
)
from kactl.model import Broker, TopicPartition, TopicRef
from tests.support.cluster_seeds import plain_states, plain_stops

# Markers of a topic in deletion: the leader in UpdateMetadata, the epoch in StopReplica.
GONE = -2


@dataclasses.dataclass
class FleetReplica:
    """State of a hosted replica from requests; `version` and `isr` are the leader's own if it leads."""

    topic: TopicRef
    leader: int
    leader_epoch: int
    isr: frozenset[int]
    version: int
    replicas: tuple[int, ...]
    controller_epoch: int
    proposed: frozenset[int] | None = None  # without a response so far
    waits: bool = False  # set by the controller's rejection: the leader's state is stale


@dataclasses.dataclass
class Host:
    """One registration of a broker."""

    id: int
    epoch: int
    controller_epoch: int = 0
    greeted: bool = False  # whether this controller has sent an UpdateMetadata
    # Partitions with a replica here and stored leadership when this registration was made, and with a replica here ever
    # since.
    older: frozenset[TopicPartition] = frozenset()
    # Partitions in LeaderAndIsr requests of this controller; None before its first one.
    named: set[TopicPartition] | None = None
    replicas: dict[TopicPartition, FleetReplica] = dataclasses.field(default_factory=dict)
    known: dict[TopicPartition, dict[str, Any]] = dataclasses.field(default_factory=dict)
    live: frozenset[int] = frozenset()

    def led(self) -> list[tuple[TopicPartition, FleetReplica]]:
        return [(name, held) for name, held in self.replicas.items() if held.leader == self.id]


class Fleet:
    """Simulated brokers behind one `Transport`, which several controllers may share.

    Args:
        is_assigned: returns whether a broker is a stored replica of a partition.
    """

    def __init__(self, clock: Clock, dice: random.Random, is_assigned: Callable[[int, TopicPartition], bool]) -> None:
        self.clock = clock
        self.dice = dice
        self.is_assigned = is_assigned
        self.hosts: dict[int, Host] = {}
        self.disks: dict[int, set[TopicPartition]] = {}  # logs of each broker, which outlive a registration
        self.silent: set[int] = set()
        self.slow: set[int] = set()
        self.forgetful = 0.0  # rate of lost responses
        self.failed: dict[int, set[str]] = {}  # partitions by broker
        self.undeletable: dict[int, set[str]] = {}
        self.said_failed: set[int] = set()  # brokers that have reported a failed directory for a replica
        self.complaints: list[str] = []

    def registered(self, broker: int, epoch: int, older: frozenset[TopicPartition]) -> None:
        """Register a broker again.

        Args:
            older: see Host.
        """
        self.hosts[broker] = Host(broker, epoch, older=older)
        self.disks.setdefault(broker, set())
        self.failed.pop(broker, None)
        self.undeletable.pop(broker, None)
        self.said_failed.discard(broker)

    def forget_topic(self, topic: str) -> None:
        """Note that a topic of this name is removed by hand, or recreated."""
        for host in self.hosts.values():
            host.older = frozenset(name for name in host.older if name.topic != topic)

    def gone(self, broker: int) -> None:
        del self.hosts[broker]

    def calm(self) -> None:
        """End new failures; earlier ones stay."""
        self.silent.clear()
        self.slow.clear()
        self.forgetful = 0.0
        self.said_failed |= {broker for broker, names in (self.failed | self.undeletable).items() if names}

    def leaders(self) -> Iterator[tuple[Host, TopicPartition, FleetReplica]]:
        """Returns the replicas that are leaders by their own state."""
        for host in list(self.hosts.values()):
            for name, held in host.led():
                yield host, name, held

    def connect(self, broker: Broker) -> "FleetConnection":
        return FleetConnection(self, broker.id)

    # -- request handling ----------------------------------------------------------------------------------------------

    async def deliver(self, broker: int, request: Request) -> Response:
        if broker in self.slow:
            await self.clock.sleep_ms(self.dice.choice((30, 300, 1500)))
        host = self.hosts.get(broker)
        if host is None or broker in self.silent:
            raise BrokerUnreachable(broker, "it is silent")
        answer = self._answer(host, request)
        if self.dice.random() < self.forgetful:
            raise BrokerUnreachable(broker, "its answer was lost")
        return answer

    def _answer(self, host: Host, request: Request) -> Response:
        error = self._refusal(host, request)
        if isinstance(request, UpdateMetadata):
            if not error:
                self._learn(host, request)
            return UpdateMetadataResponse(error)
        if isinstance(request, LeaderAndIsr):
            return LeaderAndIsrResponse(error, PartitionErrors.none() if error else self._serve(host, request))
        return StopReplicaResponse(error, PartitionErrors.none() if error else self._stop(host, request))

    def _refusal(self, host: Host, request: Request) -> int:
        if request.broker_epoch < host.epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if request.broker_epoch > host.epoch:
            self.complain(host, "a request for a registration that never was")
        if request.controller_epoch < host.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if request.controller_epoch > host.controller_epoch:
            host.controller_epoch, host.greeted, host.named = request.controller_epoch, False, None
        if isinstance(request, UpdateMetadata):
            host.greeted = True
        elif not host.greeted:
            self.complain(host, f"{type(request).__name__} before the first UpdateMetadata")
        return ErrorCode.NONE

    def _learn(self, host: Host, request: UpdateMetadata) -> None:
        host.live = frozenset(broker.id for broker in request.live_brokers)
        for name, entry in plain_states(request.states).items():
            if entry["leader"] == GONE:
                host.known.pop(name, None)
            else:
                host.known[name] = entry

    def _serve(self, host: Host, request: LeaderAndIsr) -> PartitionErrors:
        failed = self.failed.get(host.id, set())
        entries = plain_states(request.states)
        self._is_complete(host, entries)
        for name, entry in entries.items():
            held = host.replicas.get(name)
            if held is not None and held.topic.id == entry["topic_id"]:
                if held.topic.id != bytes(16) and entry["leader_epoch"] < held.leader_epoch:
                    self.complain(host, f"{name}: leader epoch {entry['leader_epoch']} after {held.leader_epoch}")
                if entry["leader_epoch"] <= held.leader_epoch and held.topic.id != bytes(16):
                    continue  # a repeated request
                if entry["leader_epoch"] == held.leader_epoch and entry["version"] <= held.version:
                    continue  # its response was lost, and the leader may have changed the ISR since
            if host.id not in entry["replicas"]:
                self.complain(host, f"{name}: to be served by {host.id}, which is none of {entry['replicas']}")
            if str(name) in failed:
                self.said_failed.add(host.id)
                host.replicas.pop(name, None)
                continue
            self.disks[host.id].add(name)
            host.replicas[name] = FleetReplica(
                TopicRef(name.topic, entry["topic_id"]), entry["leader"], entry["leader_epoch"], entry["isr"],
                entry["version"], tuple(entry["replicas"]), entry["controller_epoch"],
            )  # fmt: skip
        states = request.states
        names = [f"{states.topics[topic].name}-{at}" for topic, at in _pairs(states.topic, states.partition)]
        errors = [ErrorCode.KAFKA_STORAGE_ERROR if name in failed else ErrorCode.NONE for name in names]
        topics = tuple(topic.name for topic in states.topics)
        return PartitionErrors(topics, states.topic, states.partition, np.array(errors, np.int16))

    def _is_complete(self, host: Host, entries: dict[TopicPartition, dict[str, Any]]) -> None:
        """The first LeaderAndIsr of a controller names all that a broker hosts, so that later ones add nothing old.

        What was reassigned away since the registration is not old when it comes back.
        """
        host.older = frozenset(name for name in host.older if self.is_assigned(host.id, name))
        if host.named is not None:
            for name in (entries.keys() & host.older) - host.named:
                if not entries[name]["is_new"]:
                    self.complain(host, f"{name} was hosted from the start, and is not in the first LeaderAndIsr")
        host.named = entries.keys() | (host.named or set())

    def _stop(self, host: Host, request: StopReplica) -> PartitionErrors:
        undeletable = self.undeletable.get(host.id, set())
        errors = []
        for name, entry in plain_stops(request).items():
            held = host.replicas.get(name)
            errors.append(ErrorCode.NONE)
            if held is not None and 0 <= entry["leader_epoch"] < held.leader_epoch and held.topic.id != bytes(16):
                self.complain(host, f"{name}: stopped under {entry['leader_epoch']} after {held.leader_epoch}")
                continue
            if entry["delete"] and str(name) in undeletable:
                self.said_failed.add(host.id)
                errors[-1] = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            host.replicas.pop(name, None)
            if entry["delete"]:
                self.disks[host.id].discard(name)
        topics = tuple(topic.name for topic in request.topics)
        return PartitionErrors(topics, request.topic, request.partition, np.array(errors, np.int16))

    def complain(self, host: Host, what: str) -> None:
        self.complaints.append(f"broker {host.id} under {host.epoch}, controller epoch {host.controller_epoch}: {what}")


def _pairs(topic: Any, partition: Any) -> list[tuple[int, int]]:
    return list(zip(topic.tolist(), partition.tolist(), strict=True))


@dataclasses.dataclass
class FleetConnection:
    """Connection to one broker of the fleet."""

    fleet: Fleet
    broker: int

    async def deliver(self, request: Request) -> Response:
        return await self.fleet.deliver(self.broker, request)

    async def close(self) -> None: ...
