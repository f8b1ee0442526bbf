"""A broker's lines: requests of its controller and their effect, mostly in state-change.log, and those in server.log.

`B4` and `B5` carry the most: at INFO, they contain the log end and the high watermark of each replica at the moment it
becomes leader or follower. Source of the session and fetch lines: ZooKeeper's ClientCnxn, Kafka's NetworkClient and
FetchSessionHandler.
"""

from typing import Final

from kactl.forensics.text.format import read_formats

FORMATS: Final = read_formats(
    r"""
{FROM}
    from controller {controller:int}
{TOPIC_ID}
    (?: with topic id (?:Some\({topic_id:id}\)|None))?
{BEFORE}
    Previous leader (?:(?:Some\({prev_leader:int}\)|None|{prev_leader__2:int}) and previous leader )?epoch was
    {prev_leader_epoch:int}\.
{BY_METADATA}
    in response to UpdateMetadata request sent by controller {controller:int} epoch {controller_epoch:int} with
    correlation id {correlation_id:int}
{REJECTED}
    Ignoring (?P<request>LeaderAndIsr|StopReplica|UpdateMetadata) request(?: \(delete={delete:bool}\))? {FROM} with
    correlation id {correlation_id:int}(?: epoch {controller_epoch:int})?(?: for partition {TP})?
{TRANSITION}
    become-(?P<to_state>leader|follower) transition for partition {TP}(?: with leader {leader:int})?
{OLD}
    Partition {OLD_TP} on broker {speaker:int}:
{FROM_TO}
    (?: for partition \S+)? from {prev_isr:ids} to {isr:ids}

[broker]
B1 received-partition until=2.3 request=LEADER_AND_ISR
    Received LeaderAndIsr request {STATE} correlation id {correlation_id:int} {FROM} epoch {controller_epoch:int} for
    partition {TP}
B1-2.4 received-partition since=2.4 request=LEADER_AND_ISR
    Received LeaderAndIsr request \w*PartitionState\(topicName='{topic:name}', partitionIndex={partition:int},
    controllerEpoch=-?\d+, leader={leader:int}, leaderEpoch={leader_epoch:int}, isr=\[{isr:ids}\],
    (?:zkVersion|partitionEpoch)={partition_epoch:int}, replicas=\[{replicas:ids}\], addingReplicas=\[{adding:ids}\],
    removingReplicas=\[{removing:ids}\], isNew={is_new:bool}(?:, leaderRecoveryState={recovery:word})?\) correlation id
    {correlation_id:int} {FROM} epoch {controller_epoch:int}
B2 received since=2.6 request=LEADER_AND_ISR
    Handling LeaderAndIsr request correlationId {correlation_id:int} {FROM} for {count:int} partitions
B3 applied since=2.7 request=LEADER_AND_ISR
    Finished LeaderAndIsr request in {took_ms:int}ms correlationId {correlation_id:int} {FROM} for {count:int}
    partitions
B4 leads since=2.6 until=3.2
    Leader {TP} starts at leader epoch {leader_epoch:int} from offset {log_end:int} with high watermark
    {high_watermark:int} ISR \[{isr:ids}\] addingReplicas \[{adding:ids}\] removingReplicas \[{removing:ids}\]\.
    {BEFORE}
B4-3.3 leads since=3.3
    Leader {TP}{TOPIC_ID} starts at leader epoch {leader_epoch:int} from offset {log_end:int} with
    partition epoch {partition_epoch:int}, high watermark {high_watermark:int},? ISR \[{isr:ids}\],? adding
    ?[rR]eplicas \[{adding:ids}\](?: and)? removing ?[rR]eplicas \[{removing:ids}\] ?(?:\(under-min-isr\))?\. {BEFORE}
B5 follows since=2.6 until=3.2
    Follower {TP} starts at leader epoch {leader_epoch:int} from offset {log_end:int} with high watermark
    {high_watermark:int}\. {BEFORE}
B5-3.3 follows since=3.3
    Follower {TP}{TOPIC_ID} starts at leader epoch {leader_epoch:int} from offset {log_end:int} with partition epoch
    {partition_epoch:int} and high watermark {high_watermark:int}\.
    (?:Current leader is (?:(?:Some\()?{leader:int}\)?|None)\. )?{BEFORE}
B6 leads until=2.5
    {TP} starts at [Ll]eader [Ee]poch {leader_epoch:int} from offset
    {log_end:int}(?: with high watermark {high_watermark:int})?\. Previous [Ll]eader [Ee]poch was:?
    {prev_leader_epoch:int}\.?
B7a transition-begun request=LEADER_AND_ISR
    Handling LeaderAndIsr request correlationId {correlation_id:int} {FROM} epoch {controller_epoch:int} starting the
    {TRANSITION}
B7b transition-done request=LEADER_AND_ISR
    Completed LeaderAndIsr request correlationId {correlation_id:int} {FROM} epoch {controller_epoch:int} for the
    {TRANSITION}
B8 ignored
    {REJECTED} since (?P<reason>its (?:associated leader epoch {leader_epoch:int}
    (?:is not higher than|is smaller than|matches)|controller epoch {controller_epoch__2:int} is old\.) .*)
B8b ignored request=LEADER_AND_ISR
    Received LeaderAndIsrRequest with correlation id {correlation_id:int} from controller {controller:int} epoch
    {controller_epoch:int} for partition {TP} \(last update controller epoch \d+\) but
    (?P<reason>cannot become follower since the new leader {leader:int} is unavailable\.)
B8c ignored
    {REJECTED} (?:as|due to) (?P<reason>itself is not in assigned replica list {replicas:ids}|the local replica for the
    partition is in an offline log directory|an unexpected (?P<error>[\w.$]+) exception: .*)
B8d ignored since=2.8 request=LEADER_AND_ISR error=INCONSISTENT_TOPIC_ID
    Topic (?P<reason>ID in memory: \S+ does not match the topic ID for partition {TP} received: {topic_id:id})\.
B11a role-failed request=LEADER_AND_ISR
    Skipped the become-(?P<to_state>leader|follower) state change with correlation id {correlation_id:int} {FROM} epoch
    {controller_epoch:int} for partition {TP} \(last update controller epoch \d+\)(?: with leader {leader:int})? since
    (?P<reason>the replica for the partition is offline due to (?:disk|storage) error (?P<error>[\w.$]+).*)
B11b role-failed request=LEADER_AND_ISR to_state=leader
    Error while processing LeaderAndIsr request correlationId {correlation_id:int} received {FROM} epoch
    {controller_epoch:int} for partition {TP}
B11c role-failed request=LEADER_AND_ISR to_state=follower
    Error while processing LeaderAndIsr request with correlationId {correlation_id:int} received {FROM} epoch
    {controller_epoch:int}(?: when trying to update topic IDs in the fetchers)?
# The leader epoch is the one before.
B11d role-failed request=LEADER_AND_ISR to_state=leader
    A ZooKeeper client exception has occurred and makeLeader will be skipping the state change for the partition {TP}
    with leader epoch: {prev_leader_epoch:int}\.? ?
B11e role-failed request=LEADER_AND_ISR to_state=follower
    A ZooKeeper client exception has occurred\. makeFollower will be skipping the state change for the partition {TP}
    with leader epoch: {prev_leader_epoch:int}\.? ?
B9a metadata-partition until=2.3 request=UPDATE_METADATA
    Cached leader info (?!\w+\(topicName=){STATE} for partition {TP} {BY_METADATA}
B9a-2.4 metadata-partition since=2.4 request=UPDATE_METADATA
    Cached leader info (?=\w+\(topicName=){STATE} for partition {TP} {BY_METADATA}
B9b metadata since=2.6 request=UPDATE_METADATA
    Add {count:int} partitions and deleted {count_also:int} partitions from metadata cache {BY_METADATA}
B9c metadata-partition request=UPDATE_METADATA leader=-2
    Deleted partition {TP} from metadata cache {BY_METADATA}
B10a received since=2.6 request=STOP_REPLICA
    Handling StopReplica request correlationId {correlation_id:int} {FROM} for {count:int} partitions
B10c received-partition since=2.6 request=STOP_REPLICA
    Received StopReplica request \w+\(partitionIndex=\d+, leaderEpoch={leader_epoch:int},
    deletePartition={delete:bool}\) correlation id {correlation_id:int} {FROM} epoch {controller_epoch:int} for
    partition {TP}
B10b stopping request=STOP_REPLICA
    Handling stop replica \(delete={delete:bool}\) for partition {TP}
# -- server.log: partitions (named in the prefix), the ZooKeeper session, and fetches without a response
I1 isr-shrunk by_prefix
    Shrinking ISR{FROM_TO}(?:\. Leader: \(highWatermark: {high_watermark:int}, endOffset: {log_end:int}\)\. Out of sync
    replicas: {text:rest})?\.?
I2 isr-expanded until=2.7 by_prefix
    Expanding ISR{FROM_TO}
I3 isr-updated by_prefix
    ISR updated to \[?{isr:ids}\]? (?:\(under-min-isr\) )?and (?:version|zkVersion) updated to
    \[?{partition_epoch:int}\]?
I4 isr-refused by_prefix
    Cached zkVersion \[?{partition_epoch:int}\]? not equal to that in zookeeper, skip updating ISR
I5 truncated by_prefix
    Truncating to offset {log_end:int}
I5-1.0 truncated since=0.8 until=1.0
    Truncating log {TP} to offset {log_end:int}\.
# Before 1.0, the partition is [topic,0], not topic-0.
I1-0.8 isr-shrunk since=0.8 until=0.11
    {OLD} Shrinking ISR{FROM_TO}
I2-0.8 isr-expanded since=0.8 until=0.11
    {OLD} Expanding ISR{FROM_TO}
I3-0.8 isr-updated since=0.8 until=0.11
    {OLD} ISR updated to \[{isr:ids}\] and zkVersion updated to \[{partition_epoch:int}\]
I4-0.8 isr-refused since=0.8 until=0.11
    {OLD} Cached zkVersion \[{partition_epoch:int}\] not equal to that in zookeeper, skip updating ISR
B6-0.11 leads since=0.11 until=0.11
    {OLD} \S+ starts at Leader Epoch {leader_epoch:int} from offset {log_end:int}\. Previous Leader Epoch was:
    {prev_leader_epoch:int}
# A log directory failed; the controller's line of it is S7a.
N4 replicas-offline since=1.1
    Broker {broker:int} stopped fetcher for partitions {text:rest} and stopped moving logs for partitions .* because
    (?P<reason>they are in the failed log directory .*)
N1 session-negotiated since=0.8
    Session establishment complete on server \S+, (?:session id|sessionid) = 0x\w+, negotiated timeout = {took_ms:int}
N2 fetch-unanswered since=2.7
    Cancelled in-flight FETCH request with correlation id \d+ due to node {broker:int} being disconnected \(elapsed time
    since creation: \d+ms, elapsed time since send: {took_ms:int}ms,.*\)
N3 fetch-unanswered
    Error sending fetch request \(sessionId=\w+, epoch=\w+\) to node {broker:int}:.*
"""
)
