"""A KRaft controller, in controller.log. Only the metadata log has all of it; see `dump`."""

from typing import Final

from kactl.pipeline.event_types import EventType, Role
from kactl.pipeline.text.format import Format, line

_C: Final = Role.CONTROLLER
_IDS: Final = r"\[{%s:ids}\]"
_SINCE: Final = (2, 8)
_TOPIC_ID: Final = r" with topic ID {topic_id:id}"
_CHANGE: Final = (
    r"artition change for {TP}"
    + _TOPIC_ID
    + r":(?:.*?\bisr: "
    + _IDS % "prev_isr"
    + " -> "
    + _IDS % "isr"
    + r")?(?:.*?\bleader: {prev_leader:int} -> {leader:int})?"
    r"(?:.*?\bleaderRecoveryState: \w+ -> {recovery:word})?"
    r"(?:.*?\bleaderEpoch: {prev_leader_epoch:int} -> {leader_epoch:int})?"
    r"(?:.*?\bpartitionEpoch: {prev_partition_epoch:int} -> {partition_epoch:int})?.*"
)

FORMATS: Final[tuple[Format, ...]] = (
    line(
        "K1",
        EventType.CONTROLLER_ELECTED,
        _C,
        r"Becoming the active controller at epoch {controller_epoch:int}, "
        r"(?:next write|committed|new last committed) offset -?\d+.*",
        since=_SINCE,
    ),
    line(
        "K2",
        EventType.QUORUM_LEADER,
        _C,
        r"In the new epoch {controller_epoch:int}, the leader is (?:{controller:int}|\(none\)).*",
        since=_SINCE,
    ),
    line(
        "K3",
        EventType.BROKER_FENCED,
        _C,
        r"Fencing broker {broker:int}(?: at epoch {broker_epoch:int})? because {reason:rest}",
        since=_SINCE,
    ),
    line(
        "K4",
        EventType.BROKER_UNFENCED,
        _C,
        r"The request from broker {broker:int} to unfence has been granted"
        r"(?:.* it'?s register broker record {broker_epoch:int}\.)?.*",
        since=_SINCE,
    ),
    line(
        "K5",
        EventType.PARTITION_CREATED,
        _C,
        r"Replayed PartitionRecord for new partition {TP}"
        + _TOPIC_ID
        + r" and PartitionRegistration\(replicas=\[{replicas:ids}\],.*?\bisr=\[{isr:ids}\],.*?\bleader={leader:int}, "
        r"(?:leaderRecoveryState={recovery:word}, )?leaderEpoch={leader_epoch:int}, "
        r"partitionEpoch={partition_epoch:int}\).*",
        since=_SINCE,
    ),
    line("K6a", EventType.LEADERSHIP, _C, r"UNCLEAN p" + _CHANGE, since=_SINCE, unclean=True),
    line("K6b", EventType.LEADERSHIP, _C, r"p" + _CHANGE, since=_SINCE, unclean=False),
    line(
        "K7",
        EventType.ELECTED,
        _C,
        r"Setting new leader for topicId {topic_id:id}, partition {partition:int} to {leader:int} "
        r"using an unclean election",
        since=_SINCE,
        unclean=True,
        strategy="unclean",
    ),
    line(
        "K8",
        EventType.ELECTING,
        _C,
        r"Triggering unclean leader election for offline partition {TP}\.",
        since=_SINCE,
        unclean=True,
        strategy="unclean",
    ),
    line(
        "K9",
        EventType.SLOW_EVENT,
        _C,
        r"Exceptionally slow controller event {text:rest} took {took_ms:int} ms\.?",
        since=_SINCE,
    ),
    line("K10", EventType.CONTROLLER_RESIGNED, _C, r"Renouncing the leadership {reason:rest}", since=_SINCE),
    line(
        "K11",
        EventType.BROKER_STOPPING,
        _C,
        r"Unfenced broker {broker:int} has requested and been granted (?:a controlled|an immediate) shutdown\.",
        since=_SINCE,
    ),
    line(
        "K12",
        EventType.BROKER_FENCED,
        _C,
        r"Unfenced broker {broker:int} has requested and been granted fencing",
        since=_SINCE,
        reason="it asked for it",
    ),
)
