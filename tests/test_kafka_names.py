"""The table of Kafka's names in docs/architecture.md."""

import ast
import re
from typing import Final

from kactl.decide.messages import admin, broker, leases
from kactl.decide.messages.events import Event

from .support import tree

PAGE: Final = tree.ROOT / "docs" / "architecture.md"
_ROW: Final = re.compile(r"\| (?P<kafka>[^|`]*(?:`[^`]*`[^|]*)?) \| (?P<own>`[^|]*`) \| `(?P<file>[^|`]*)` \|")
MODULES: Final = (admin, broker, leases)


def rows() -> list[tuple[str, list[str], str]]:
    section = PAGE.read_text(encoding="utf-8").partition("\n## Kafka's names\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][2:]
    found = [_ROW.fullmatch(line) for line in lines]
    assert all(found), [line for line, one in zip(lines, found, strict=True) if not one]
    return [(one["kafka"], re.findall(r"`([^`]*)`", one["own"]), one["file"]) for one in found if one]


def leaves(kind: type[Event]) -> set[type[Event]]:
    below = kind.__subclasses__()
    return {kind} if not below else set().union(*map(leaves, below))


def test_every_name_is_defined_in_its_file() -> None:
    for _, own, file in rows():
        if (tree.ROOT / file).stem in own:
            continue  # a module of functions
        parsed = ast.parse((tree.ROOT / file).read_bytes())
        defined = {node.name for node in ast.walk(parsed) if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        assert set(own) <= defined, file


def test_every_event_has_a_row() -> None:
    listed = {name for _, own, _ in rows() for name in own}
    shipped = {event.__name__ for event in leaves(Event) if event.__module__.startswith("kactl.decide.messages.")}

    assert MODULES
    assert shipped - listed == set()


# Events of Kafka's controller (3.9), without the one that only ends its thread.
KAFKA_EVENTS: Final = (
    "AllocateProducerIds",
    "AlterPartitionReceived",
    "ApiPartitionReassignment",
    "AutoPreferredReplicaLeaderElection",
    "BrokerChange",
    "BrokerModifications",
    "ControlledShutdown",
    "ControllerChange",
    "Expire",
    "IsrChangeNotification",
    "LeaderAndIsrResponseReceived",
    "ListPartitionReassignments",
    "LogDirEventNotification",
    "PartitionModifications",
    "PartitionReassignmentIsrChange",
    "Reelect",
    "RegisterBrokerAndReelect",
    "ReplicaLeaderElection",
    "Startup",
    "TopicChange",
    "TopicDeletion",
    "TopicDeletionStopReplicaResponseReceived",
    "TopicUncleanLeaderElectionEnable",
    "UncleanLeaderElectionEnable",
    "UpdateFeatures",
    "UpdateMetadataResponseReceived",
    "ZkPartitionReassignment",
)


def test_events_bear_kafkas_names() -> None:
    shipped = {event.__name__ for event in leaves(Event) if event.__module__.startswith("kactl.decide.messages.")}

    assert set(KAFKA_EVENTS) <= shipped
    assert {name for name in shipped - set(KAFKA_EVENTS) if re.search("(?:ed|Due|Gone|Lost)$", name)} == set()


def test_names_that_readers_look_for_are_there() -> None:
    kafka = " ".join(names for names, _, _ in rows())

    for name in (
        "ControllerBrokerRequestBatch",
        "ControllerChannelManager",
        "ReplicaStateMachine",
        "PartitionStateMachine",
        "TopicDeletionManager",
        "IsrChangeNotification",
        "BrokerChange",
        "TopicChange",
        "LeaderAndIsrResponseReceived",
    ):
        assert re.search(rf"\b{name}\b", kafka), name
