"""Cluster controller with Kafka's semantics: elects the leader of every partition and notifies every broker."""

import importlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kactl.actors.system import Controller, Snapshot
    from kactl.clock import Clock, SystemClock
    from kactl.config.controller_settings import ControllerSettings
    from kactl.config.protocol_level import ProtocolLevel
    from kactl.errors import (
        BadRequest,
        ControllerFailed,
        ErrorCode,
        KactlError,
        LeadershipLost,
        NotController,
        NotFound,
        NotReady,
        Remedy,
        StaleToken,
        TopicExists,
    )
    from kactl.machines.explain import Candidate, DeletionExplanation, Explanation
    from kactl.messages.admin import (
        ElectionKind,
        ElectionResult,
        FeatureResult,
        FeatureUpdate,
        ReassignmentResult,
        UpgradeType,
    )
    from kactl.messages.log import (
        AnyEvent,
        BrokerEvent,
        ControllerEvent,
        PartitionEvent,
        ReplicaEvent,
        RequestEvent,
        Reset,
        TopicEvent,
    )
    from kactl.model import Assignment, Broker, PartitionState, PartitionView, ReplicaState, TopicPartition, TopicRef
    from kactl.participant.group import Participants
    from kactl.participant.handlers.handler import Follower, PartitionHandler
    from kactl.participant.leases.events import LeaseAtRisk, LeaseLapsed, LeaseResumed
    from kactl.participant.leases.leader import Leader
    from kactl.participant.leases.terms import LeaseConfig
    from kactl.participant.leases.token import FencingToken
    from kactl.participant.listener import Listener
    from kactl.participant.participant import Participant
    from kactl.stores.base import Store
    from kactl.stores.etcd import EtcdStore
    from kactl.stores.memory import MemoryStore
    from kactl.stores.sqlite import SqliteStore
    from kactl.transports.base import Transport
    from kactl.transports.memory import MemoryHub

__all__ = [
    "AnyEvent",
    "Assignment",
    "BadRequest",
    "Broker",
    "BrokerEvent",
    "Candidate",
    "Clock",
    "Controller",
    "ControllerEvent",
    "ControllerFailed",
    "ControllerSettings",
    "DeletionExplanation",
    "ElectionKind",
    "ElectionResult",
    "ErrorCode",
    "EtcdStore",
    "Explanation",
    "FeatureResult",
    "FeatureUpdate",
    "FencingToken",
    "Follower",
    "KactlError",
    "Leader",
    "LeadershipLost",
    "LeaseAtRisk",
    "LeaseConfig",
    "LeaseLapsed",
    "LeaseResumed",
    "Listener",
    "MemoryHub",
    "MemoryStore",
    "NotController",
    "NotFound",
    "NotReady",
    "Participant",
    "Participants",
    "PartitionEvent",
    "PartitionHandler",
    "PartitionState",
    "PartitionView",
    "ProtocolLevel",
    "ReassignmentResult",
    "Remedy",
    "ReplicaEvent",
    "ReplicaState",
    "RequestEvent",
    "Reset",
    "Snapshot",
    "SqliteStore",
    "StaleToken",
    "Store",
    "SystemClock",
    "TopicEvent",
    "TopicExists",
    "TopicPartition",
    "TopicRef",
    "Transport",
    "UpgradeType",
]

# Where each public name lives. It is imported when it is first asked for: the command line needs none of them, and
# numpy alone takes longer to import than a command may take.
_HOME = {
    "actors.system": ("Controller", "Snapshot"),
    "clock": ("Clock", "SystemClock"),
    "errors": (
        "BadRequest",
        "ControllerFailed",
        "ErrorCode",
        "KactlError",
        "LeadershipLost",
        "NotController",
        "NotFound",
        "NotReady",
        "Remedy",
        "StaleToken",
        "TopicExists",
    ),
    "machines.explain": ("Candidate", "DeletionExplanation", "Explanation"),
    "messages.admin": (
        "ElectionKind",
        "ElectionResult",
        "FeatureResult",
        "FeatureUpdate",
        "ReassignmentResult",
        "UpgradeType",
    ),
    "messages.log": (
        "AnyEvent",
        "BrokerEvent",
        "ControllerEvent",
        "PartitionEvent",
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
    "stores.base": ("Store",),
    "stores.etcd": ("EtcdStore",),
    "stores.memory": ("MemoryStore",),
    "stores.sqlite": ("SqliteStore",),
    "transports.base": ("Transport",),
    "transports.memory": ("MemoryHub",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}


# A host program that has not set up logging hears nothing from us, in place of unasked lines on stderr.
logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
