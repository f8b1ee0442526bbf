"""Harmless lines of Kafka's loggers: known, and therefore not counted as unparsed."""

import pytest

from kactl.forensics.event_types import Kind
from kactl.forensics.text.dispatch import is_chatter

from .reading import events_of

SAID = [
    "[RequestSendThread controllerId=1] Controller 1 fails to send a request to broker host-3:9092 (id: 3 rack: null)",
    "[Broker id=2] Skipped the adding-fetcher step of the become-follower state change with correlation id 22 from "
    "controller 1 epoch 2 for partition a-0 with leader 3 since it is shutting down",
    "[Controller id=2] Resigning",
    "[Controller id=3] Broker 1 was elected as controller instead of broker 3",
    "[Controller id=1] All shutting down brokers: 2",
    "[Controller id=1] Live brokers: 1,3",
    "[Controller id=1] All leaders = a-0 -> (Leader:3,ISR:3,LeaderRecoveryState:RECOVERED,LeaderEpoch:3,ZkVersion:4,"
    "ControllerEpoch:2)",
    "[Controller id=1] Waiting for any successful result for election type (PREFERRED) by AdminClientTriggered for "
    "partitions: HashMap(a-0 -> Right(3))",
    "[QuorumController id=1] Creating new QuorumController with clusterId 4L6g3nShT-eMCtK--X86sw.",
    "[QuorumController id=1] registerBroker: event failed with NotControllerException in 7979 microseconds. Exception "
    "message: The active controller appears to be node 1.",
    "[QuorumController id=1] Performing controller activation. The metadata log appears to be empty.",
    "[QuorumController id=1] Replayed a FeatureLevelRecord setting metadata.version to 3.9-IV0",
    "[QuorumController id=1] processExpiredBrokerHeartbeat: controller event queue overloaded. Timed out heartbeat.",
    "[QuorumController id=1] Rejecting AlterPartition request from node 3 for orders-2 because the current partition "
    "epoch is 3, not 2.",
    "[QuorumController id=1] Rejecting AlterPartition request for unknown partition orders-2.",
    "[QuorumController id=1] Fenced broker 2 has requested and been granted an immediate shutdown.",
    "[Broker id=1] Transitioning 1 partition(s) to local leaders.",
    "[Broker id=1] Creating new partition orders-0 with topic id 4NrZhavzS4SZ-yfUOACJhw.",
    "[Broker id=1] Started fetchers as part of become-follower for 2 partitions",
    "[Broker id=1] Skipped the become-leader state change for orders-0 with topic id Some(4NrZhavzS4SZ-yfUOACJhw)",
    "[Broker id=2] The topic partition a-0 was marked as RECOVERING. Marking the topic partition as RECOVERED.",
    # Before 1.0.
    "[Controller 1]: Controller starting up",
    "[Controller 1]: Controller startup complete",
    "[Controller 1]: Controller shutdown complete",
    "[Controller 1]: starting the partition rebalance scheduler",
    "[Controller 1]: checking need to trigger partition rebalance",
    "[Controller 1]: preferred replicas by broker Map(2 -> Map([a,0] -> List(2, 3)))",
    "[Controller 1]: topics not in preferred replica Map()",
    "[Controller 1]: Registering IsrChangeNotificationListener",
    "[Controller 1]: Partitions being reassigned: Map()",
    "[Controller 1]: Resuming reassignment of partitions: Map()",
    "[Controller-1-to-broker-2-send-thread], Starting ",
    "[Controller-1-to-broker-2-send-thread], Stopped ",
    "[Replica state machine on controller 1]: Invoking state change to OnlineReplica for replicas ",
    "[Partition state machine on Controller 1]: Invoking state change to OfflinePartition for partitions [a,0],[b,1]",
    "[Partition state machine on Controller 1]: After leader election, leader cache is updated to Map([a,0] -> "
    "(Leader:2,ISR:2,3,LeaderEpoch:7,ControllerEpoch:5))",
    "[BrokerChangeListener on Controller 1]: Broker change listener fired for path /brokers/ids with children 1,2",
    "[TopicChangeListener on Controller 1]: Topic change listener fired for path /brokers/topics with children a",
    '[AddPartitionsListener on 1]: Add Partition triggered {"version":1} for path /brokers/topics/a',
    "[AddPartitionsListener on 1]: New partitions to be added [Map()]",
    "[ControllerEpochListener on 1]: Controller epoch listener fired with new epoch 5",
    "[OfflinePartitionLeaderSelector]: Some broker in ISR is alive for [a,0]. Select 2 from ISR 2,3 to be the leader.",
    "[OfflinePartitionLeaderSelector]: No broker in ISR is alive for [a,0]. Pick the leader from the alive assigned "
    "replicas: ",
    "Broker 2 stopped fetchers as part of become-leader request from controller 1 epoch 5 with correlation id 77 for "
    "partition [a,0]",
    "Broker 2 skipped the become-leader state change after marking its partition as leader with correlation id 77 from "
    "controller 1 epoch 5 for partition [a,0] since it is already the leader for the partition.",
    "Broker 2 skipped the adding-fetcher step of the become-follower state change with correlation id 77 from "
    "controller 1 epoch 5 for partition [a,0] since it is shutting down",
    "Broker 2 truncated logs and checkpointed recovery boundaries for partition [a,0] as part of become-follower "
    "request with correlation id 77 from controller 1 epoch 5",
    "Broker 2 finished handling stop replica (delete=false) for partition [a,0]",
    # Of controllers up to 3.5.
    "[Controller 6] processBrokerHeartbeat: unable to start processing because of NotControllerException.",
    "[Controller 6] unable to start processing registerBroker because of NotControllerException.",
    "[Controller 6] processBrokerHeartbeat: failed with NotControllerException in 31 us",
    "[Controller 6] registerBroker: failed with UnsupportedVersionException in 212 us. Reason: The broker is too old.",
    "[Controller 6] writeNoOpRecord: failed with unknown server exception IllegalStateException in 612 us.  The "
    "controller is already in standby mode.",
    "[Controller 6] org.apache.kafka.controller.QuorumController@4fe8a1c2: failed with unknown server exception "
    "IllegalStateException at epoch -1 in 612 us.  Reverting to last committed offset 8044.",
    "[Controller 6] Fenced broker: FenceBrokerRecord(id=4, epoch=811)",
    "[Controller 6] Unfenced broker: UnfenceBrokerRecord(id=4, epoch=811)",
    "[Controller 6] Validate-only CreateTopics result(s): CreatableTopic(name='a-b', numPartitions=2): SUCCESS",
    "[Controller 6] createTopics result(s): CreatableTopic(name='a-b', numPartitions=2): SUCCESS",
    "[Controller 6] Starting to replay snapshot (OffsetAndEpoch(offset=70, epoch=3)), from last commit offset (-1) and "
    "epoch (-1)",
    "[Controller 6] The metadata log appears to be empty. Appending 1 bootstrap record(s) at metadata.version 3.4-IV0.",
    "[Controller 6] No metadata.version feature level record was found in the log. Treating it as 3.0-IV1.",
    "[Controller 6] maybeCompleteAuthorizerInitialLoad: completing authorizer initial load at last committed offset 9.",
    "[Controller 6] Scheduling write event for writeNoOpRecord because maxIdleIntervalNs (500000000)",
    "[Controller 6] Cancelling deferred write event maybeFenceReplicas because this controller is no longer active.",
    "[Controller 6] Applied ISR change record: PartitionChangeRecord(partitionId=3, topicId=AbC-dEf_GhIjKlMnOpQrSt)",
    # With ZooKeeper: what others state as well.
    "[Broker id=2] Skipped the become-leader state change after marking its partition as leader with correlation id 7 "
    "from controller 1 epoch 5 for partition orders-3 (last update controller epoch 4) since it is already the leader "
    "for the partition.",
    "[Broker id=2] Skipped the become-follower state change after marking its partition as follower with "
    "correlation id 7 from controller 1 epoch 5 for partition orders-3 (last update controller epoch 4) since the new "
    "leader 3 is the same as the old leader",
    "[Broker id=2] Skipped the update topic ID step of the become-follower state change with correlation id 7 from "
    "controller 1 epoch 5 for partition orders-3 since it is shutting down",
    "[Broker id=2] Truncated logs and checkpointed recovery boundaries for partition orders-3 as part of "
    "become-follower request with correlation id 7 from controller 1 epoch 5 with leader 3",
    "[Broker id=2] Started fetcher to new leader as part of become-follower request from controller 1 epoch 5 with "
    "correlation id 7 for partition orders-3 with leader BrokerEndPoint(id=3, host=host-3:9092)",
    "[Broker id=2] Updating log for orders-3 to assign topic ID AbC-dEf_GhIjKlMnOpQrSt from LeaderAndIsr request from "
    "controller 1 with correlation id 7 epoch 5",
    "[Broker id=2] Updating PartitionFetchState for orders-3 to remove log topic ID AbC-dEf_GhIjKlMnOpQrSt since "
    "LeaderAndIsr request from controller 1 with correlation id 7 epoch 5 did not contain a topic ID",
    "[Controller id=1] Preferred replicas by broker Map(2 -> Map(orders-3 -> Vector(2, 1)))",
    "[Controller id=1] Reading controller epoch from ZooKeeper",
    "[Controller id=1] Incrementing controller epoch in ZooKeeper",
    "[Controller id=1] There is no producerId block yet (Zk path version 3), creating the first block",
    "[Controller id=1] Read current producerId block ProducerIdsBlock(assignedBrokerId=2, firstProducerId=7000, "
    "size=1000), Zk path version 4",
    "[Controller id=1] Acquired new producerId block ProducerIdsBlock(assignedBrokerId=2, firstProducerId=8000, "
    "size=1000) by writing to Zk with path version 5",
    "[Controller id=1] Removed ArrayBuffer() from list of shutting down brokers.",
    "[Controller id=1] Partitions being reassigned: Map()",
    "[Controller id=1] Resuming reassignment of partitions: Map()",
    "[Controller id=1] Removing partitions Set(orders-3) from the list of reassigned partitions in zookeeper",
    "[Controller id=1] No more partitions need to be reassigned. Deleting zk path /admin/reassign_partitions",
    "[Controller id=1] Updating assignment of partition orders-3 from ReplicaAssignment(replicas=1,2, addingReplicas=, "
    "removingReplicas=) to ReplicaAssignment(replicas=3,1,2, addingReplicas=3, removingReplicas=1)",
    "[Controller id=1] Skipping reassignment of orders-3 since the topic is currently being deleted",
    "[Controller id=1] Ignoring request to reassign partition orders-3 that doesn't exist.",
    "[Controller id=1] Ignoring registration of new brokers due to incompatibilities with finalized features: 4,13",
    "[Controller id=1] Ignoring AllocateProducerIds due to unknown broker 13",
    "[Controller id=1] Rejecting AlterPartition from node 2 for orders-3 because leader is recovering and ISR is "
    "greater than 1: LeaderAndIsr(leader=2)",
    "[Topic Deletion Manager 1] Deletion started for replicas [Topic=orders,Partition=3,Replica=2]",
    "[Topic Deletion Manager 1] Deletion successfully completed for replicas [Topic=orders,Partition=3,Replica=2]",
    "preRegister called. Server=com.sun.jmx.mbeanserver.JmxMBeanServer@77e4c80f, name=log4j:logger=state.change.logger",
    # From real nodes of 4.0 to 4.3.
    "[QuorumController id=3001] Updated the controlled shutdown offset for broker 3 to 188.",
    "[QuorumController id=3001] Ignoring no-op registration change for BrokerRegistration(id=2, epoch=7)",
    "[QuorumController id=3001] Verified that 3 broker(s) and 3 controller(s) supported changing "
    "eligible.leader.replicas.version to feature level 1.",
    "[QuorumController id=3001] Activated periodic tasks: electPreferred, electUnclean, expireDelegationTokens, "
    "generatePeriodicPerformanceMessage, maybeFenceStaleBroker, writeNoOpRecord",
    "[QuorumController id=3001] Registering periodic task electUnclean to run every 5000 ms",
    "[QuorumController id=3001] Periodic task maybeFenceStaleBroker generated 0 records in 52 microseconds.",
    "[QuorumController id=3001] rescheduling writeNoOpRecord in 499000000 ns (immediate = false, error = false)",
    "[QuorumController id=3001] cancelling electPreferred because we are inactive.",
    "[QuorumController id=3001] Appended 1 record(s) in 1 batch(es), ending with offset 1010.",
    "[QuorumController id=3001] Completing read-only operation electUnclean(7) immediately because the "
    "purgatory is empty.",
    "[QuorumController id=3001] Read-write operation unregisterBroker(251830951) will be completed when the "
    "log reaches "
    "offset 1179.",
    "[QuorumController id=3001] Executing handleCommit[baseOffset=12].",
    "[QuorumController id=3001] Processed maybeFenceStaleBroker(1) in 120 us",
    "[QuorumController id=3001] Replaying log record NoOpRecord() with offset 77",
    "[QuorumController id=3001] Replaying commits from the active node up to offset 77 and epoch 1.",
    "[QuorumController id=3001] Broker 1 assigned partition e1:0 to ONLINE dir Z39VeUQJvIaCQpsVGfjbUg",
    "[QuorumController id=3001] Directories [] in broker 1 marked cordoned",
    "[QuorumController id=3001] Cannot trigger unclean leader election for offline partition e1-0 because "
    "unclean leader "
    "election is disabled for this topic.",
    "[QuorumController id=3001] Node 2 has altered ISR for t1-0 to [1, 2].",
    "[QuorumController id=3001] Removed ELRs from 2 partitions of topic e1.",
    "[QuorumController id=3001] Generating cluster-level min.insync.replicas of 1.",
    "[QuorumController id=3001] DeleteTopics result(s): {id: RF-sC_KoR1mHjI_FVJ1ikQ, name: gone, result: SUCCESS}",
    "[QuorumController id=3001] Successfully altered 3 out of 3 partition reassignment(s).",
    "[QuorumController id=3001] completeActivation[1](1): event failed with NotControllerException in 117 "
    "microseconds.",
    "Try to elect last known leader for RTk8EawhTeS-92_xgpdeLQ-1 but ELR/ISR is not empty. ISR=[], ELR=[2]",
    "[Broker id=1] Deleting 3 partition(s).",
    "[Broker id=1] Expected partition m1-2 with topic id L0SJO7cxRhmN_3PnBxSbzQ to exist, but it was missing. "
    "Creating...",
    "[BrokerLifecycleManager id=1] The broker is in RECOVERY.",
    "[BrokerLifecycleManager id=1] The broker is in PENDING_CONTROLLED_SHUTDOWN state, still waiting for the active "
    "controller.",
    "[BrokerLifecycleManager id=1] The controller has asked us to exit controlled shutdown.",
    "[BrokerLifecycleManager id=1] The broker is RUNNING. Processing heartbeat response.",
    "[BrokerLifecycleManager id=1] Unable to send a heartbeat because the RPC got timed out before it could be sent.",
    "[BrokerLifecycleManager id=1] Broker 1 sent a heartbeat request but received error REQUEST_TIMED_OUT.",
]


@pytest.mark.parametrize("message", SAID)
def test_harmless_lines_are_known(message: str) -> None:
    text = f"[2024-05-01 10:00:00,123] INFO {message} (kafka.controller.KafkaController)\n"

    (event,) = events_of(text, kind=Kind.CONTROLLER)

    assert (event["type"], event["lines"]) == ("harmless", 1)


def test_unknown_lines_are_not_harmless() -> None:
    assert not is_chatter(b"Resigning is what it never did before")
    assert not is_chatter(b"All is well")
    assert not is_chatter(b"Starting  to do what it never did before")
    assert not is_chatter(b"Broker 2 stopped for good")
    for record in ("PartitionRecord", "TopicRecord", "RemoveTopicRecord", "UnregisterBrokerRecord"):
        assert not is_chatter(f"Replayed {record} for what has another form".encode())
    assert not is_chatter(b"handleBrokerFenced: changing what has another form")
    assert not is_chatter(b"Fenced broker 4 for what has another form")
    assert not is_chatter(b"writeNoOpRecord: failed in another form")


def test_harmless_lines_are_counted_separately_from_other_lines() -> None:
    text = (
        "[2024-05-01 10:00:00,123] INFO [QuorumController id=1] No stale brokers found. "
        "(org.apache.kafka.controller.ReplicationControlManager)\n"
        "[2024-05-01 10:00:00,123] INFO Completed load of log t-0 (kafka.log.LogManager)\n"
    )

    assert [event["type"] for event in events_of(text, kind=Kind.SERVER)] == ["harmless", "other"]
