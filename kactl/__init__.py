"""Cluster controller with Kafka's semantics: elects the leader of every partition and notifies every broker."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kactl.actors.system import Controller, Snapshot
    from kactl.config.controller_settings import ControllerSettings
    from kactl.config.protocol_level import ProtocolLevel
    from kactl.decide.machines.explain import Candidate, DeletionExplanation, Explanation
    from kactl.decide.messages.admin import (
        ElectionKind,
        ElectionResult,
        FeatureResult,
        FeatureUpdate,
        ReassignmentResult,
        UpgradeType,
    )
    from kactl.decide.messages.control import OrderReason
    from kactl.decide.messages.log import (
        AnyEvent,
        BrokerEvent,
        Cause,
        ControllerEvent,
        ElectionEvent,
        HandlerEvent,
        PartitionEvent,
        ReplicaEvent,
        RequestEvent,
        Reset,
        TopicEvent,
    )
    from kactl.decide.messages.routes import Version
    from kactl.model import Assignment, Broker, PartitionState, PartitionView, ReplicaState, TopicPartition, TopicRef
    from kactl.model.errors import (
        ActionTimedOut,
        BadRequest,
        ControllerFailed,
        ErrorCode,
        KactlError,
        LeadershipLost,
        NotController,
        NotFound,
        NotReady,
        ProcessForked,
        Remedy,
        RoutesStale,
        StaleToken,
        TopicExists,
    )
    from kactl.participant.group import Participants
    from kactl.participant.handlers.handler import Follower, PartitionHandler
    from kactl.participant.leases.events import LeaseAtRisk, LeaseLapsed, LeaseResumed
    from kactl.participant.leases.leader import Leader
    from kactl.participant.leases.terms import LeaseConfig
    from kactl.participant.leases.token import FencingToken
    from kactl.participant.listener import Listener
    from kactl.participant.participant import Participant
    from kactl.participant.spectator.routes import Route, RouteChange, RoutesReset
    from kactl.participant.spectator.spectator import Spectator
    from kactl.runtime.clock import Clock, SystemClock
    from kactl.runtime.running import run
    from kactl.stores.base import Store
    from kactl.stores.etcd import EtcdStore
    from kactl.stores.memory import MemoryStore
    from kactl.stores.sqlite import SqliteStore
    from kactl.transports.base import Transport
    from kactl.transports.memory import MemoryHub
    from kactl.transports.tcp.limits import Limits
    from kactl.transports.tcp.network import TcpNetwork
    from kactl.transports.tcp.tls import Tls
    from kactl.worker.shard import Shard
    from kactl.worker.worker import Worker, shards, singleton

__all__ = [
    "ActionTimedOut",
    "AnyEvent",
    "Assignment",
    "BadRequest",
    "Broker",
    "BrokerEvent",
    "Candidate",
    "Cause",
    "Clock",
    "Controller",
    "ControllerEvent",
    "ControllerFailed",
    "ControllerSettings",
    "DeletionExplanation",
    "ElectionEvent",
    "ElectionKind",
    "ElectionResult",
    "ErrorCode",
    "EtcdStore",
    "Explanation",
    "FeatureResult",
    "FeatureUpdate",
    "FencingToken",
    "Follower",
    "HandlerEvent",
    "KactlError",
    "Leader",
    "LeadershipLost",
    "LeaseAtRisk",
    "LeaseConfig",
    "LeaseLapsed",
    "LeaseResumed",
    "Limits",
    "Listener",
    "MemoryHub",
    "MemoryStore",
    "NotController",
    "NotFound",
    "NotReady",
    "OrderReason",
    "Participant",
    "Participants",
    "PartitionEvent",
    "PartitionHandler",
    "PartitionState",
    "PartitionView",
    "ProcessForked",
    "ProtocolLevel",
    "ReassignmentResult",
    "Remedy",
    "ReplicaEvent",
    "ReplicaState",
    "RequestEvent",
    "Reset",
    "Route",
    "RouteChange",
    "RoutesReset",
    "RoutesStale",
    "Shard",
    "Snapshot",
    "Spectator",
    "SqliteStore",
    "StaleToken",
    "Store",
    "SystemClock",
    "TcpNetwork",
    "Tls",
    "TopicEvent",
    "TopicExists",
    "TopicPartition",
    "TopicRef",
    "Transport",
    "UpgradeType",
    "Version",
    "Worker",
    "run",
    "shards",
    "singleton",
]

# Where each public name lives. It is imported when it is first asked for: the command line needs none of them, and
# numpy alone takes longer to import than a command may take.
_HOME = {
    "actors.system": ("Controller", "Snapshot"),
    "runtime.clock": ("Clock", "SystemClock"),
    "model.errors": (
        "ActionTimedOut",
        "BadRequest",
        "ControllerFailed",
        "ErrorCode",
        "KactlError",
        "LeadershipLost",
        "NotController",
        "NotFound",
        "NotReady",
        "ProcessForked",
        "Remedy",
        "RoutesStale",
        "StaleToken",
        "TopicExists",
    ),
    "decide.machines.explain": ("Candidate", "DeletionExplanation", "Explanation"),
    "decide.messages.admin": (
        "ElectionKind",
        "ElectionResult",
        "FeatureResult",
        "FeatureUpdate",
        "ReassignmentResult",
        "UpgradeType",
    ),
    "decide.messages.control": ("OrderReason",),
    "decide.messages.log": (
        "AnyEvent",
        "BrokerEvent",
        "Cause",
        "ControllerEvent",
        "ElectionEvent",
        "PartitionEvent",
        "HandlerEvent",
        "ReplicaEvent",
        "RequestEvent",
        "Reset",
        "TopicEvent",
    ),
    "config.controller_settings": ("ControllerSettings",),
    "config.protocol_level": ("ProtocolLevel",),
    "model": ("Assignment", "Broker", "PartitionState", "PartitionView", "ReplicaState", "TopicPartition", "TopicRef"),
    "participant.group": ("Participants",),
    "participant.handlers.handler": ("Follower", "PartitionHandler"),
    "participant.leases.events": ("LeaseAtRisk", "LeaseLapsed", "LeaseResumed"),
    "participant.leases.leader": ("Leader",),
    "participant.leases.terms": ("LeaseConfig",),
    "participant.leases.token": ("FencingToken",),
    "participant.listener": ("Listener",),
    "participant.participant": ("Participant",),
    "decide.messages.routes": ("Version",),
    "runtime.running": ("run",),
    "participant.spectator.routes": ("Route", "RouteChange", "RoutesReset"),
    "participant.spectator.spectator": ("Spectator",),
    "stores.base": ("Store",),
    "stores.etcd": ("EtcdStore",),
    "stores.memory": ("MemoryStore",),
    "stores.sqlite": ("SqliteStore",),
    "transports.base": ("Transport",),
    "transports.memory": ("MemoryHub",),
    "transports.tcp.limits": ("Limits",),
    "transports.tcp.network": ("TcpNetwork",),
    "transports.tcp.tls": ("Tls",),
    "worker.shard": ("Shard",),
    "worker.worker": ("Worker", "shards", "singleton"),
}
# Packages with public names of their own.
_PACKAGES = ("admin", "fencing", "kafka")
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
