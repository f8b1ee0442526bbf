"""A broker's lines about requests of its controller and their effect, mostly in state-change.log.

`B4` and `B5` carry the most: at INFO, they contain the log end and the high watermark of each replica at the moment it
becomes leader or follower.
"""

from functools import partial
from typing import Final

from kactl.forensics.event_types import EventType, Role
from kactl.forensics.text.format import Format, line

_broker: Final = partial(line, role=Role.BROKER)
_LEADER: Final = "LEADER_AND_ISR"
_METADATA: Final = "UPDATE_METADATA"
_STOP: Final = "STOP_REPLICA"
_FROM: Final = r"from controller {controller:int}"
_TOPIC_ID: Final = r"(?: with topic id (?:Some\({topic_id:id}\)|None))?"
_BEFORE: Final = (
    r"Previous leader (?:(?:Some\({prev_leader:int}\)|None|{prev_leader__2:int}) and previous leader )?"
    r"epoch was {prev_leader_epoch:int}\."
)
_BY_METADATA: Final = (
    r" in response to UpdateMetadata request sent by controller {controller:int} epoch {controller_epoch:int} "
    r"with correlation id {correlation_id:int}"
)
_TRANSITION: Final = r"become-(?P<to_state>leader|follower) transition for partition {TP}(?: with leader {leader:int})?"

FORMATS: Final[tuple[Format, ...]] = (
    _broker(
        "B1",
        EventType.RECEIVED_PARTITION,
        r"Received LeaderAndIsr request {STATE} correlation id {correlation_id:int} "
        + _FROM
        + r" epoch {controller_epoch:int} for partition {TP}",
        until=(2, 3),
        request=_LEADER,
    ),
    _broker(
        "B1-2.4",
        EventType.RECEIVED_PARTITION,
        r"Received LeaderAndIsr request \w*PartitionState\(topicName='{topic:name}', partitionIndex={partition:int}, "
        r"controllerEpoch=-?\d+, leader={leader:int}, leaderEpoch={leader_epoch:int}, isr=\[{isr:ids}\], "
        r"(?:zkVersion|partitionEpoch)={partition_epoch:int}, replicas=\[{replicas:ids}\], "
        r"addingReplicas=\[{adding:ids}\], removingReplicas=\[{removing:ids}\], isNew={is_new:bool}"
        r"(?:, leaderRecoveryState={recovery:word})?\) correlation id {correlation_id:int} "
        + _FROM
        + r" epoch {controller_epoch:int}",
        since=(2, 4),
        request=_LEADER,
    ),
    _broker(
        "B2",
        EventType.RECEIVED,
        r"Handling LeaderAndIsr request correlationId {correlation_id:int} " + _FROM + r" for {count:int} partitions",
        since=(2, 6),
        request=_LEADER,
    ),
    _broker(
        "B3",
        EventType.APPLIED,
        r"Finished LeaderAndIsr request in {took_ms:int}ms correlationId {correlation_id:int} "
        + _FROM
        + r" for {count:int} partitions",
        since=(2, 7),
        request=_LEADER,
    ),
    _broker(
        "B4",
        EventType.LEADS,
        r"Leader {TP}" + _TOPIC_ID + r" starts at leader epoch {leader_epoch:int} from offset {log_end:int} "
        r"with (?:partition epoch {partition_epoch:int}, )?high watermark {high_watermark:int},? ISR \[{isr:ids}\],? "
        r"adding ?[rR]eplicas \[{adding:ids}\](?: and)? removing ?[rR]eplicas \[{removing:ids}\]"
        r" ?(?:\(under-min-isr\))?\. " + _BEFORE,
        since=(2, 6),
    ),
    _broker(
        "B5",
        EventType.FOLLOWS,
        r"Follower {TP}" + _TOPIC_ID + r" starts at leader epoch {leader_epoch:int} from offset {log_end:int} "
        r"with (?:partition epoch {partition_epoch:int} and )?high watermark {high_watermark:int}\. "
        r"(?:Current leader is (?:(?:Some\()?{leader:int}\)?|None)\. )?" + _BEFORE,
        since=(2, 6),
    ),
    _broker(
        "B6",
        EventType.LEADS,
        r"{TP} starts at [Ll]eader [Ee]poch {leader_epoch:int} from offset {log_end:int}"
        r"(?: with high watermark {high_watermark:int})?\. "
        r"Previous [Ll]eader [Ee]poch was:? {prev_leader_epoch:int}\.?",
        until=(2, 5),
    ),
    _broker(
        "B7a",
        EventType.TRANSITION_BEGUN,
        r"Handling LeaderAndIsr request correlationId {correlation_id:int} "
        + _FROM
        + r" epoch {controller_epoch:int} starting the "
        + _TRANSITION,
        request=_LEADER,
    ),
    _broker(
        "B7b",
        EventType.TRANSITION_DONE,
        r"Completed LeaderAndIsr request correlationId {correlation_id:int} "
        + _FROM
        + r" epoch {controller_epoch:int} for the "
        + _TRANSITION,
        request=_LEADER,
    ),
    _broker(
        "B8",
        EventType.IGNORED,
        r"Ignoring (?P<request>LeaderAndIsr|StopReplica|UpdateMetadata) request "
        + _FROM
        + r" with correlation id {correlation_id:int}(?: epoch {controller_epoch:int})?(?: for partition {TP})? since "
        r"(?P<reason>its (?:associated leader epoch {leader_epoch:int} (?:is not higher than|is smaller than|matches)|"
        r"controller epoch {controller_epoch__2:int} is old\.) .*)",
    ),
    _broker(
        "B8b",
        EventType.IGNORED,
        r"Received LeaderAndIsrRequest with correlation id {correlation_id:int} from controller {controller:int} "
        r"epoch {controller_epoch:int} for partition {TP} \(last update controller epoch \d+\) but "
        r"(?P<reason>cannot become follower since the new leader {leader:int} is unavailable\.)",
        request=_LEADER,
    ),
    _broker(
        "B9a",
        EventType.METADATA_PARTITION,
        r"Cached leader info {STATE} for partition {TP}" + _BY_METADATA,
        request=_METADATA,
    ),
    _broker(
        "B9b",
        EventType.METADATA,
        r"Add {count:int} partitions and deleted {count_also:int} partitions from metadata cache" + _BY_METADATA,
        since=(2, 6),
        request=_METADATA,
    ),
    _broker(
        "B9c",
        EventType.METADATA_PARTITION,
        r"Deleted partition {TP} from metadata cache" + _BY_METADATA,
        request=_METADATA,
        leader=-2,
    ),
    _broker(
        "B10a",
        EventType.RECEIVED,
        r"Handling StopReplica request correlationId {correlation_id:int} " + _FROM + r" for {count:int} partitions",
        since=(2, 6),
        request=_STOP,
    ),
    _broker(
        "B10c",
        EventType.RECEIVED_PARTITION,
        r"Received StopReplica request \w+\(partitionIndex=\d+, leaderEpoch={leader_epoch:int}, "
        r"deletePartition={delete:bool}\) correlation id {correlation_id:int} "
        + _FROM
        + r" epoch {controller_epoch:int} for partition {TP}",
        since=(2, 6),
        request=_STOP,
    ),
    _broker(
        "B10b", EventType.STOPPING, r"Handling stop replica \(delete={delete:bool}\) for partition {TP}", request=_STOP
    ),
)
