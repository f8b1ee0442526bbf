"""Lines as each version of Kafka writes them, with their events. Written by hand, after the versions' patterns."""

from typing import Any, Final, NamedTuple

STATE: Final = "state.change.logger"
CONTROLLER: Final = "kafka.controller.KafkaController"
SELECTOR: Final = "kafka.controller.OfflinePartitionLeaderSelector"
PARTITION: Final = "kafka.cluster.Partition"
CLIENT: Final = "org.apache.zookeeper.ClientCnxn"
QUORUM: Final = "org.apache.kafka.controller.QuorumController"

_OLD_STATE: Final = (
    "PartitionState(controllerEpoch=4, leader=2, leaderEpoch=7, isr=2,3, zkVersion=12, replicas=1,2,3, isNew=false)"
)
_STATE_2_4: Final = (
    "LeaderAndIsrPartitionState(topicName='a-b-0', partitionIndex=3, controllerEpoch=4, leader=2, leaderEpoch=7, "
    "isr=[2, 3], zkVersion=12, replicas=[1, 2, 3], addingReplicas=[3], removingReplicas=[1], isNew=true)"
)
_STATE_3_3: Final = (
    "LeaderAndIsrPartitionState(topicName='a-b-0', partitionIndex=3, controllerEpoch=4, leader=2, leaderEpoch=7, "
    "isr=[2, 3], partitionEpoch=12, replicas=[1, 2, 3], addingReplicas=[], removingReplicas=[], isNew=false, "
    "leaderRecoveryState=1)"
)
_OLD_METADATA_STATE: Final = (
    "PartitionState(controllerEpoch=4, leader=2, leaderEpoch=7, isr=[2, 3], zkVersion=12, replicas=[1, 2, 3], "
    "offlineReplicas=[1])"
)
_METADATA_STATE: Final = (
    "UpdateMetadataPartitionState(topicName='a-b-0', partitionIndex=3, controllerEpoch=4, leader=2, leaderEpoch=7, "
    "isr=[2, 3], zkVersion=12, replicas=[1, 2, 3], offlineReplicas=[1])"
)
_LEGACY_STATE: Final = (
    "(LeaderAndIsrInfo:(Leader:2,ISR:2,3,LeaderEpoch:7,ControllerEpoch:4),ReplicationFactor:3),AllReplicas:1,2,3)"
)
_STATE_0_10: Final = (
    "PartitionState(controllerEpoch=4, leader=2, leaderEpoch=7, isr=[2, 3], zkVersion=12, replicas=[1, 2, 3])"
)
TP: Final = {"topic": "a-b-0", "partition": 3}
_HELD: Final = {"leader": 2, "leader_epoch": 7, "isr": [2, 3], "partition_epoch": 12, "replicas": [1, 2, 3]}
_ONLINE: Final = TP | {"from_state": "OfflinePartition", "to_state": "OnlinePartition", "leader": 2, "leader_epoch": 7}
_C: Final = {"speaker": 1, "controller": 1, "controller_epoch": 5}
_B: Final = {"speaker": 2}
C: Final = "[Controller id=1 epoch=5] "
B: Final = "[Broker id=2] "
K: Final = "[Controller id=1] "
Q: Final = "[QuorumController id=3000] "


class Golden(NamedTuple):
    """A line's message with its prefix, and its expected event."""

    format: str
    message: str
    says: dict[str, Any]
    logger: str = STATE
    level: str = "INFO"
    continued: str = ""


GOLDEN: Final = (
    # -- controllers: partitions ---------------------------------------------------------------------------------------
    Golden(
        "P1",
        C + "Changed partition a-b-0-3 state from NonExistentPartition to NewPartition with assigned replicas 1,2,3",
        _C | TP | {"from_state": "NonExistentPartition", "to_state": "NewPartition", "replicas": [1, 2, 3]},
    ),
    Golden(
        "P2a",
        C + "Changed partition a-b-0-3 from OfflinePartition to OnlinePartition with leader 2",
        _C | TP | {"leader": 2, "to_state": "OnlinePartition"},
        level="TRACE",
    ),
    Golden(
        "P2b",
        C + "Changed partition a-b-0-3 from OfflinePartition to OnlinePartition with state "
        "LeaderAndIsr(leader=2, leaderEpoch=7, isr=List(2, 3), zkVersion=12)",
        _C | _ONLINE | {"isr": [2, 3], "partition_epoch": 12},
    ),
    Golden(
        "P2b",
        C + "Changed partition a-b-0-3 from OnlinePartition to OnlinePartition with state "
        "LeaderAndIsr(leader=-1, leaderEpoch=7, isr=Vector(), zkVersion=12)",
        _C | TP | {"leader": -1, "isr": []},
    ),
    Golden(
        "P2b-3.2",
        C + "Changed partition a-b-0-3 from OfflinePartition to OnlinePartition with state "
        "LeaderAndIsr(leader=2, leaderEpoch=7, isr=List(2, 3), leaderRecoveryState=RECOVERED, zkVersion=12)",
        _C | _ONLINE | {"isr": [2, 3], "partition_epoch": 12, "recovery": "RECOVERED"},
    ),
    Golden(
        "P2b-3.3",
        C + "Changed partition a-b-0-3 from OfflinePartition to OnlinePartition with state "
        "LeaderAndIsr(leader=2, leaderEpoch=7, isr=List(2), leaderRecoveryState=RECOVERING, partitionEpoch=12)",
        _C | _ONLINE | {"isr": [2], "partition_epoch": 12, "recovery": "RECOVERING"},
    ),
    Golden(
        "P2b-3.5",
        C + "Changed partition a-b-0-3 from OfflinePartition to OnlinePartition with state LeaderAndIsr(leader=2, "
        "leaderEpoch=7, isrWithBrokerEpoch=List(BrokerState(brokerId=2, brokerEpoch=-1), BrokerState(brokerId=3, "
        "brokerEpoch=-1)), leaderRecoveryState=RECOVERED, partitionEpoch=12)",
        _C | _ONLINE | {"isr": [2, 3], "partition_epoch": 12, "recovery": "RECOVERED"},
    ),
    Golden(
        "P3",
        C + "Changed partition a-b-0-3 state from OnlinePartition to OfflinePartition",
        _C | TP | {"from_state": "OnlinePartition", "to_state": "OfflinePartition"},
        level="TRACE",
    ),
    Golden(
        "P3",
        K + "Changed partition a-b-0-3 state from OfflinePartition to NonExistentPartition",
        TP | {"speaker": 1, "controller": 1, "controller_epoch": None, "to_state": "NonExistentPartition"},
        level="TRACE",
    ),
    Golden(
        "P4a",
        C + "Initiated state change for partition a-b-0-3 from OfflinePartition to OnlinePartition failed",
        _C
        | TP
        | {
            "to_state": "OnlinePartition",
            "error": "kafka.common.NoReplicaOnlineException",
            "reason": "No broker in ISR for partition a-b-0-3 is alive.",
        },
        level="ERROR",
        continued="kafka.common.NoReplicaOnlineException: No broker in ISR for partition a-b-0-3 is alive.\n"
        "\tat kafka.controller.X.y(X.scala:1)",
    ),
    Golden(
        "P4b",
        C
        + "Controller 1 epoch 5 failed to change state for partition a-b-0-3 from OfflinePartition to OnlinePartition",
        _C
        | TP
        | {
            "strategy": "offline",
            "error": "kafka.common.StateChangeFailedException",
            "reason": "Failed to elect leader for partition a-b-0-3 under strategy "
            "OfflinePartitionLeaderElectionStrategy(false)",
        },
        level="ERROR",
        continued="kafka.common.StateChangeFailedException: Failed to elect leader for partition a-b-0-3 "
        "under strategy OfflinePartitionLeaderElectionStrategy(false)\n\tat kafka.controller.X.y(X.scala:1)\n\t... 3",
    ),
    Golden("P5a", C + "Started leader election for partition a-b-0-3", _C | TP, level="TRACE"),
    Golden(
        "P5b",
        C + "Elected leader 2 for Offline partition a-b-0-3",
        _C | TP | {"leader": 2, "strategy": "offline"},
        level="TRACE",
    ),
    # -- controllers: replicas -----------------------------------------------------------------------------------------
    Golden(
        "R1",
        C + "Changed state of replica 3 for partition a-b-0-3 from OnlineReplica to OfflineReplica",
        _C | TP | {"broker": 3, "from_state": "OnlineReplica", "to_state": "OfflineReplica"},
        level="TRACE",
    ),
    Golden(
        "R2",
        C + "Controller 1 epoch 5 initiated state change of replica 3 for partition a-b-0-3 from "
        "NewReplica to ReplicaDeletionStarted failed",
        _C | TP | {"broker": 3, "from_state": "NewReplica"},
        level="ERROR",
    ),
    Golden(
        "R2-1.0",
        C + "Initiated state change of replica 3 for partition a-b-0-3 from "
        "NewReplica to ReplicaDeletionStarted failed",
        _C | TP | {"broker": 3},
        level="ERROR",
    ),
    Golden(
        "R3",
        C + "Partition a-b-0-3 state changed to (Leader:-1,ISR:2,LeaderEpoch:7,ControllerEpoch:6) after removing "
        "replica 3 from the ISR as part of transition to OfflineReplica",
        _C
        | TP
        | {
            "broker": 3,
            "leader": -1,
            "leader_epoch": 7,
            "isr": [2],
            "controller_epoch": 6,
            "partition_epoch": None,
            "to_state": "OfflineReplica",
        },
    ),
    Golden(
        "R3",
        C + "Partition a-b-0-3 state changed to (Leader:2,ISR:2,LeaderEpoch:7,ZkVersion:12,ControllerEpoch:6) "
        "after removing replica 3 from the ISR as part of transition to OfflineReplica",
        _C | TP | {"partition_epoch": 12, "leader": 2, "controller_epoch": 6},
    ),
    Golden(
        "R3",
        C + "Partition a-b-0-3 state changed to (Leader:2,ISR:2,LeaderRecoveryState:RECOVERED,LeaderEpoch:7,"
        "ZkVersion:12,ControllerEpoch:6) after removing replica 3 from the ISR as part of transition to "
        "OfflineReplica",
        _C | TP | {"recovery": "RECOVERED", "partition_epoch": 12, "controller_epoch": 6},
    ),
    # -- controllers: requests -----------------------------------------------------------------------------------------
    Golden(
        "S1",
        C + f"Sending become-leader LeaderAndIsr request {_OLD_STATE} to broker 2 for partition a-b-0-3",
        _C | TP | _HELD | {"broker": 2, "is_new": False, "to_state": "leader", "request": "LEADER_AND_ISR"},
        level="TRACE",
    ),
    Golden(
        "S1-2.4",
        C + f"Sending become-follower LeaderAndIsr request {_STATE_2_4} to broker 2 for partition a-b-0-3",
        _C | TP | _HELD | {"adding": [3], "removing": [1], "is_new": True, "to_state": "follower"},
        level="TRACE",
    ),
    Golden(
        "S1-2.4",
        C + f"Sending become-follower LeaderAndIsr request {_STATE_3_3} to broker 2 for partition a-b-0-3",
        _C | TP | _HELD | {"recovery": "RECOVERING", "adding": []},
        level="TRACE",
    ),
    Golden(
        "S2",
        C + "Sending LeaderAndIsr request to broker 2 with 3 become-leader and 4 become-follower partitions",
        _C | {"broker": 2, "count": 3, "count_also": 4, "request": "LEADER_AND_ISR"},
    ),
    Golden(
        "S3",
        C + f"Sending UpdateMetadata request {_OLD_METADATA_STATE} to brokers Set(1, 2, 3) for partition a-b-0-3",
        _C | TP | _HELD | {"brokers": [1, 2, 3], "request": "UPDATE_METADATA"},
        level="TRACE",
    ),
    Golden(
        "S3-2.4",
        C + f"Sending UpdateMetadata request {_METADATA_STATE} to brokers Set(1, 2, 3) for partition a-b-0-3",
        _C | TP | _HELD | {"brokers": [1, 2, 3], "request": "UPDATE_METADATA"},
        level="TRACE",
    ),
    Golden(
        "S4",
        C + "Sending UpdateMetadata request to brokers HashSet(1, 2) for 12 partitions",
        _C | {"brokers": [1, 2], "count": 12},
    ),
    Golden(
        "S5a",
        C + "Sending StopReplica request StopReplicaPartitionState(partitionIndex=3, leaderEpoch=-2, "
        "deletePartition=true) to broker 2 for partition a-b-0-3",
        _C | TP | {"leader_epoch": -2, "delete": True, "broker": 2, "request": "STOP_REPLICA"},
        level="TRACE",
    ),
    Golden(
        "S5b",
        C + "Sending StopReplica request (delete = true) for 4 replicas to broker 2",
        _C | {"delete": True, "count": 4, "broker": 2},
    ),
    Golden("S5b", C + "Sending StopReplica request for 4 replicas to broker 2", _C | {"delete": None, "count": 4}),
    Golden(
        "S5c",
        "The stop replica request (delete = false) sent to broker 2 is [Topic=a,Partition=3,Replica=2]",
        {"delete": False, "broker": 2, "text": "[Topic=a,Partition=3,Replica=2]"},
        logger=CONTROLLER,
        level="DEBUG",
    ),
    Golden(
        "S6",
        C + "Received response {error_code=0,partitions=[{topic=a,partition=3,error_code=0},{topic=a,partition=4,"
        "error_code=9},{topic=a,partition=5,error_code=11}]} for request LEADER_AND_ISR with correlation id 77 sent to "
        "broker host-2:9092 (id: 2 rack: null)",
        _C | {"request": "LEADER_AND_ISR", "correlation_id": 77, "broker": 2, "error": "REPLICA_NOT_AVAILABLE"},
        level="TRACE",
    ),
    Golden(
        "S6",
        C + "Received response {error_code=0,partitions=[{topic=a,partition=3,error_code=0}]} for request "
        "LEADER_AND_ISR with correlation id 77 sent to broker host-2:9092 (id: 2 rack: null)",
        _C | {"request": "LEADER_AND_ISR", "correlation_id": 77, "error": "NONE"},
        level="TRACE",
    ),
    Golden(
        "S6",
        C + "Received response LeaderAndIsrResponseData(errorCode=0, partitionErrors=[LeaderAndIsrPartitionError("
        "topicName='a', partitionIndex=3, errorCode=56)], topics=[]) for request LEADER_AND_ISR with correlation id 77 "
        "sent to broker host-2:9092 (id: 2 rack: null)",
        _C | {"correlation_id": 77, "error": "KAFKA_STORAGE_ERROR"},
        level="TRACE",
    ),
    Golden(
        "S6",
        C + "Received response UpdateMetadataResponseData(errorCode=11) for request UPDATE_METADATA with "
        "correlation id 78 sent to broker host-2:9092 (id: 2 rack: rack-1)",
        _C | {"request": "UPDATE_METADATA", "broker": 2, "error": "STALE_CONTROLLER_EPOCH"},
        level="TRACE",
    ),
    Golden(
        "S6-1.0",
        C + "Received response {error_code=0} for a request sent to broker host-2:9092 (id: 2 rack: null)",
        _C | {"broker": 2, "error": "NONE", "request": None},
        level="TRACE",
    ),
    Golden("S7a", C + "Mark replicas a-b-0-3,c-1 on broker 2 as offline", _C | {"broker": 2, "text": "a-b-0-3,c-1"}),
    Golden(
        "S7b",
        C + "Received error KAFKA_STORAGE_ERROR in LeaderAndIsr response LeaderAndIsrResponseData(errorCode=0) "
        "from broker 2",
        _C | {"broker": 2, "error": "KAFKA_STORAGE_ERROR"},
        level="ERROR",
    ),
    Golden(
        "S7c",
        C + "Sent LeaderAndIsr request LeaderAndIsr(leader=2) with new replica assignment 1,2 to leader 2 for "
        "partition being reassigned a-b-0-3",
        _C | TP,
    ),
    # -- brokers -------------------------------------------------------------------------------------------------------
    Golden(
        "B1",
        B + f"Received LeaderAndIsr request {_OLD_STATE} correlation id 77 from controller 1 epoch 5 for "
        "partition a-b-0-3",
        _B | TP | _HELD | {"correlation_id": 77, "controller": 1, "controller_epoch": 5},
        level="TRACE",
    ),
    Golden(
        "B1-2.4",
        B + f"Received LeaderAndIsr request {_STATE_2_4} correlation id 77 from controller 1 epoch 5",
        _B | TP | _HELD | {"correlation_id": 77, "controller": 1, "is_new": True, "adding": [3]},
        level="TRACE",
    ),
    Golden(
        "B1-2.4",
        B + f"Received LeaderAndIsr request {_STATE_3_3} correlation id 77 from controller 1 epoch 5",
        _B | TP | _HELD | {"recovery": "RECOVERING", "controller_epoch": 5},
        level="TRACE",
    ),
    Golden(
        "B2",
        B + "Handling LeaderAndIsr request correlationId 77 from controller 1 for 12 partitions",
        _B | {"correlation_id": 77, "controller": 1, "count": 12, "request": "LEADER_AND_ISR"},
    ),
    Golden(
        "B3",
        B + "Finished LeaderAndIsr request in 34ms correlationId 77 from controller 1 for 12 partitions",
        _B | {"correlation_id": 77, "took_ms": 34, "count": 12, "controller": 1},
    ),
    Golden(
        "B4",
        B + "Leader a-b-0-3 starts at leader epoch 7 from offset 1000 with high watermark 990 ISR [2,3] "
        "addingReplicas [3] removingReplicas []. Previous leader epoch was 6.",
        _B
        | TP
        | {
            "leader_epoch": 7,
            "log_end": 1000,
            "high_watermark": 990,
            "isr": [2, 3],
            "adding": [3],
            "removing": [],
            "prev_leader_epoch": 6,
            "prev_leader": None,
        },
    ),
    Golden(
        "B4-3.3",
        B + "Leader a-b-0-3 with topic id Some(AbC-dEf_GhIjKlMnOpQrSt) starts at leader epoch 7 from offset "
        "5000000000 with partition epoch 12, high watermark 4999999999, ISR [2], adding replicas [] and removing "
        "replicas [] (under-min-isr). Previous leader Some(1) and previous leader epoch was 6.",
        _B
        | TP
        | {
            "topic_id": "AbC-dEf_GhIjKlMnOpQrSt",
            "log_end": 5000000000,
            "high_watermark": 4999999999,
            "partition_epoch": 12,
            "isr": [2],
            "prev_leader": 1,
            "prev_leader_epoch": 6,
        },
    ),
    Golden(
        "B4-3.3",
        B + "Leader a-b-0-3 with topic id None starts at leader epoch 0 from offset 0 with partition epoch 0, "
        "high watermark 0, ISR [2,3], adding replicas [] and removing replicas [] . Previous leader None and "
        "previous leader epoch was -1.",
        _B | TP | {"topic_id": None, "prev_leader": None, "prev_leader_epoch": -1},
    ),
    Golden(
        "B5",
        B + "Follower a-b-0-3 starts at leader epoch 7 from offset 1005 with high watermark 990. Previous "
        "leader epoch was 6.",
        _B | TP | {"leader_epoch": 7, "log_end": 1005, "high_watermark": 990, "prev_leader_epoch": 6, "leader": None},
    ),
    Golden(
        "B5-3.3",
        B + "Follower a-b-0-3 starts at leader epoch 7 from offset 1005 with partition epoch 12 and high "
        "watermark 990. Current leader is 3. Previous leader Some(1) and previous leader epoch was 6.",
        _B | TP | {"partition_epoch": 12, "leader": 3, "prev_leader": 1, "prev_leader_epoch": 6},
    ),
    Golden(
        "B6",
        "[Partition a-b-0-3 broker=2] a-b-0-3 starts at Leader Epoch 7 from offset 1000. Previous Leader Epoch was: 6",
        _B | TP | {"leader_epoch": 7, "log_end": 1000, "prev_leader_epoch": 6},
        logger=PARTITION,
    ),
    Golden(
        "B6",
        "[Partition a-b-0-3 broker=2] a-b-0-3 starts at leader epoch 7 from offset 1000 with high watermark 990. "
        "Previous leader epoch was 6.",
        _B | TP | {"high_watermark": 990},
        logger=PARTITION,
    ),
    Golden(
        "B7a",
        B + "Handling LeaderAndIsr request correlationId 77 from controller 1 epoch 5 starting the "
        "become-follower transition for partition a-b-0-3 with leader 3",
        _B | TP | {"correlation_id": 77, "to_state": "follower", "leader": 3},
        level="TRACE",
    ),
    Golden(
        "B7b",
        B + "Completed LeaderAndIsr request correlationId 77 from controller 1 epoch 5 for the become-leader "
        "transition for partition a-b-0-3",
        _B | TP | {"to_state": "leader", "controller_epoch": 5},
        level="TRACE",
    ),
    Golden(
        "B8",
        B + "Ignoring LeaderAndIsr request from controller 1 with correlation id 77 epoch 5 for partition "
        "a-b-0-3 since its associated leader epoch 6 is not higher than the current leader epoch 7",
        _B | TP | {"request": "LEADER_AND_ISR", "leader_epoch": 6, "controller_epoch": 5},
    ),
    Golden(
        "B8",
        B + "Ignoring StopReplica request from controller 1 with correlation id 77 since its controller epoch 5 "
        "is old. Latest known controller epoch is 6",
        _B
        | {
            "request": "STOP_REPLICA",
            "controller_epoch": 5,
            "topic": None,
            "reason": "its controller epoch 5 is old. Latest known controller epoch is 6",
        },
        level="WARN",
    ),
    Golden(
        "B8",
        B + "Ignoring StopReplica request (delete=true) from controller 1 with correlation id 77 epoch 5 for partition "
        "a-b-0-3 since its associated leader epoch 6 is smaller than the current leader epoch 7",
        _B | TP | {"request": "STOP_REPLICA", "delete": True, "leader_epoch": 6, "correlation_id": 77},
        level="WARN",
    ),
    Golden(
        "B8c",
        B + "Ignoring LeaderAndIsr request from controller 1 with correlation id 77 epoch 5 for partition a-b-0-3 as "
        "itself is not in assigned replica list 1,3",
        _B
        | TP
        | {
            "request": "LEADER_AND_ISR",
            "controller_epoch": 5,
            "replicas": [1, 3],
            "reason": "itself is not in assigned replica list 1,3",
        },
        level="WARN",
    ),
    Golden(
        "B8c",
        B
        + "Ignoring StopReplica request (delete=false) from controller 1 with correlation id 77 epoch 5 for partition "
        "a-b-0-3 as the local replica for the partition is in an offline log directory",
        _B | TP | {"delete": False, "reason": "the local replica for the partition is in an offline log directory"},
        level="WARN",
    ),
    Golden(
        "B8c",
        B + "Ignoring StopReplica request (delete=true) from controller 1 with correlation id 77 epoch 5 for partition "
        "a-b-0-3 due to an unexpected java.io.IOException exception: read-only",
        _B | TP | {"error": "java.io.IOException", "reason": "an unexpected java.io.IOException exception: read-only"},
        level="ERROR",
    ),
    Golden(
        "B8d",
        B + "Topic ID in memory: AbC-dEf_GhIjKlMnOpQrSt does not match the topic ID for partition a-b-0-3 received: "
        "ZyX-wVu_TsRqPoNmLkJiHg.",
        _B | TP | {"topic_id": "ZyX-wVu_TsRqPoNmLkJiHg", "error": "INCONSISTENT_TOPIC_ID"},
        level="ERROR",
    ),
    Golden(
        "B11a",
        B + "Skipped the become-leader state change with correlation id 77 from controller 1 epoch 5 for partition "
        "a-b-0-3 (last update controller epoch 4) since the replica for the partition is offline due to storage error "
        "org.apache.kafka.common.errors.KafkaStorageException: no space",
        _B
        | TP
        | {
            "to_state": "leader",
            "correlation_id": 77,
            "controller_epoch": 5,
            "error": "org.apache.kafka.common.errors.KafkaStorageException",
            "reason": "the replica for the partition is offline due to storage error "
            "org.apache.kafka.common.errors.KafkaStorageException: no space",
        },
        level="ERROR",
    ),
    Golden(
        "B11a",
        B + "Skipped the become-follower state change with correlation id 77 from controller 1 epoch 5 for partition "
        "a-b-0-3 (last update controller epoch 4) with leader 3 since the replica for the partition is offline due to "
        "disk error org.apache.kafka.common.errors.KafkaStorageException",
        _B | TP | {"to_state": "follower", "leader": 3, "request": "LEADER_AND_ISR"},
        level="ERROR",
    ),
    Golden(
        "B11b",
        B + "Error while processing LeaderAndIsr request correlationId 77 received from controller 1 epoch 5 for "
        "partition a-b-0-3",
        _B
        | TP
        | {"to_state": "leader", "correlation_id": 77, "error": "java.io.IOException", "reason": "Too many maps"},
        level="ERROR",
        continued="java.io.IOException: Too many maps\n\tat a.b(C.java:1)",
    ),
    Golden(
        "B11c",
        B + "Error while processing LeaderAndIsr request with correlationId 77 received from controller 1 epoch 5 when "
        "trying to update topic IDs in the fetchers",
        _B | {"to_state": "follower", "controller_epoch": 5, "topic": None, "error": "java.lang.OutOfMemoryError"},
        level="ERROR",
        continued="java.lang.OutOfMemoryError: Metaspace",
    ),
    Golden(
        "B11d",
        B + "A ZooKeeper client exception has occurred and makeLeader will be skipping the state change for the "
        "partition a-b-0-3 with leader epoch: 6 ",
        _B | TP | {"to_state": "leader", "prev_leader_epoch": 6, "leader_epoch": None},
        level="ERROR",
    ),
    Golden(
        "B11e",
        B
        + "A ZooKeeper client exception has occurred. makeFollower will be skipping the state change for the partition "
        "a-b-0-3 with leader epoch: 6.",
        _B | TP | {"to_state": "follower", "prev_leader_epoch": 6},
        level="ERROR",
    ),
    Golden(
        "B9a",
        B + f"Cached leader info {_OLD_METADATA_STATE} for partition a-b-0-3 in response to UpdateMetadata request "
        "sent by controller 1 epoch 5 with correlation id 77",
        _B | TP | _HELD | {"correlation_id": 77, "controller": 1},
        level="TRACE",
    ),
    Golden(
        "B9a-2.4",
        B + f"Cached leader info {_METADATA_STATE} for partition a-b-0-3 in response to UpdateMetadata request "
        "sent by controller 1 epoch 5 with correlation id 77",
        _B | TP | _HELD | {"correlation_id": 77, "controller": 1},
        level="TRACE",
    ),
    Golden(
        "B9b",
        B + "Add 12 partitions and deleted 3 partitions from metadata cache in response to UpdateMetadata "
        "request sent by controller 1 epoch 5 with correlation id 77",
        _B | {"count": 12, "count_also": 3, "correlation_id": 77},
    ),
    Golden(
        "B9c",
        B + "Deleted partition a-b-0-3 from metadata cache in response to UpdateMetadata request sent by "
        "controller 1 epoch 5 with correlation id 77",
        _B | TP | {"leader": -2},
        level="TRACE",
    ),
    Golden(
        "B10a",
        B + "Handling StopReplica request correlationId 77 from controller 1 for 4 partitions",
        _B | {"request": "STOP_REPLICA", "count": 4},
    ),
    Golden(
        "B10b",
        B + "Handling stop replica (delete=true) for partition a-b-0-3",
        _B | TP | {"delete": True},
        level="TRACE",
    ),
    Golden(
        "B10c",
        B + "Received StopReplica request StopReplicaPartitionState(partitionIndex=3, leaderEpoch=2, "
        "deletePartition=false) correlation id 77 from controller 1 epoch 5 for partition a-b-0-3",
        _B | TP | {"controller_epoch": 5, "leader_epoch": 2, "delete": False, "request": "STOP_REPLICA"},
        level="TRACE",
    ),
    # -- controllership ------------------------------------------------------------------------------------------------
    Golden("C1a", K + "1 successfully elected as the controller", {"controller": 1, "speaker": 1}, CONTROLLER),
    Golden(
        "C1b",
        K + "1 successfully elected as the controller. Epoch incremented to 5 and epoch zk version is now 5",
        {"controller": 1, "controller_epoch": 5},
        CONTROLLER,
    ),
    Golden("C1c", K + "Epoch incremented to 5", {"controller": 1, "controller_epoch": 5}, CONTROLLER),
    Golden("C1d", K + "Incremented epoch to 5", {"controller_epoch": 5}, CONTROLLER),
    Golden(
        "C1e", "[Controller 1]: Controller 1 incremented epoch to 5", {"speaker": 1, "controller_epoch": 5}, CONTROLLER
    ),
    Golden(
        "C2a",
        K + "Ready to serve as the new controller with epoch 5",
        {"controller": 1, "controller_epoch": 5},
        CONTROLLER,
    ),
    Golden("C2b", K + "Starting the controller scheduler", {"controller": 1}, CONTROLLER, "DEBUG"),
    Golden("C2c", K + "Resigned", {"controller": 1}, CONTROLLER, "DEBUG"),
    Golden(
        "C2d",
        K + "Controller moved to another broker when processing BrokerChange.",
        {"reason": "BrokerChange."},
        CONTROLLER,
    ),
    Golden(
        "C3",
        K + "Newly added brokers: 3, deleted brokers: , all live brokers: 1,2,3",
        {"brokers_added": [3], "brokers_removed": [], "brokers_bounced": None, "brokers": [1, 2, 3]},
        CONTROLLER,
    ),
    Golden(
        "C3",
        K + "Newly added brokers: , deleted brokers: 3, bounced brokers: 2, all live brokers: 1,2",
        {"brokers_removed": [3], "brokers_bounced": [2], "brokers": [1, 2]},
        CONTROLLER,
    ),
    Golden("C4a", K + "Broker failure callback for 1,2", {"brokers_removed": [1, 2]}, CONTROLLER),
    Golden("C4b", K + "New broker startup callback for 1", {"brokers_added": [1]}, CONTROLLER),
    Golden("C4c", K + "Removed ArrayBuffer(2) from list of shutting down brokers.", {"broker": 2}, CONTROLLER),
    Golden(
        "C4c",
        K + "Removed List(2, 13) from list of shutting down brokers.",
        {"broker": None, "brokers": [2, 13]},
        CONTROLLER,
    ),
    Golden(
        "C4c", K + "Removed 2,13 from list of shutting down brokers.", {"broker": None, "brokers": [2, 13]}, CONTROLLER
    ),
    Golden("C4c", K + "Removed 13 from list of shutting down brokers.", {"broker": 13, "brokers": None}, CONTROLLER),
    Golden("C4d", K + "Shutting down broker 2", {"broker": 2}, CONTROLLER),
    # -- elections, topics, reassignments ------------------------------------------------------------------------------
    Golden(
        "C5a",
        K + "Starting preferred replica leader election for partitions a-b-0-3",
        {"strategy": "preferred", "text": "a-b-0-3"},
        CONTROLLER,
    ),
    Golden(
        "C5b",
        K + "Starting replica leader election (PREFERRED) for partitions  triggered by ZkTriggered",
        {"strategy": "preferred", "trigger": "ZkTriggered", "text": ""},
        CONTROLLER,
    ),
    Golden(
        "C5b",
        K + "Starting replica leader election (UNCLEAN) for partitions a-b-0-3 triggered by AdminClientTriggered",
        {"strategy": "unclean", "trigger": "AdminClientTriggered"},
        CONTROLLER,
    ),
    Golden(
        "C12a",
        K + "Error completing preferred replica leader election for partition a-b-0-3",
        TP
        | {
            "strategy": "preferred",
            "to_state": "OnlinePartition",
            "error": "kafka.common.StateChangeFailedException",
            "reason": "Failed to elect leader for partition a-b-0-3 under strategy "
            "PreferredReplicaPartitionLeaderElectionStrategy",
        },
        CONTROLLER,
        "ERROR",
        "kafka.common.StateChangeFailedException: Failed to elect leader for partition a-b-0-3 under strategy "
        "PreferredReplicaPartitionLeaderElectionStrategy\n\tat kafka.controller.X.y(X.scala:1)",
    ),
    Golden(
        "C12b",
        K + "Error completing replica leader election (PREFERRED) for partition a-b-0-3",
        TP | {"strategy": "preferred", "reason": "nothing alive"},
        CONTROLLER,
        "ERROR",
        "kafka.common.StateChangeFailedException: nothing alive",
    ),
    Golden(
        "C12b",
        K + "Error completing replica leader election (UNCLEAN) for partition a-b-0-3 because controller has moved to "
        "another broker.",
        TP | {"strategy": "unclean", "reason": "controller has moved to another broker"},
        CONTROLLER,
    ),
    Golden(
        "C12c",
        K + "Partition a-b-0-3 failed to complete preferred replica leader election. Leader is 2",
        TP | {"strategy": "preferred", "leader": 2, "broker": None},
        CONTROLLER,
        "WARN",
    ),
    Golden(
        "C12c",
        "[Controller 1]: Partition [a-b-0,3] failed to complete preferred replica leader election. Leader is 2",
        TP | {"leader": 2, "controller": 1},
        CONTROLLER,
        "WARN",
    ),
    Golden(
        "C12d",
        K + "Partition a-b-0-3 failed to complete preferred replica leader election to 13. Leader is still 2",
        TP | {"strategy": "preferred", "broker": 13, "leader": 2, "controller": 1},
        CONTROLLER,
        "WARN",
    ),
    Golden(
        "C12e",
        K + "Partition a-b-0-3 completed preferred replica leader election. New leader is 13",
        TP | {"strategy": "preferred", "leader": 13, "unclean": None},
        CONTROLLER,
    ),
    Golden("C6a", K + "Processing automatic preferred replica leader election", {}, CONTROLLER),
    Golden("C6b", K + "Leader imbalance ratio for broker 2 is 0.25", {"broker": 2, "ratio": 0.25}, CONTROLLER, "TRACE"),
    Golden("C6c", K + "Unclean leader election has been enabled by default", {"topic": None}, CONTROLLER),
    Golden("C6c", K + "Unclean leader election has been enabled for topic a-b", {"topic": "a-b"}, CONTROLLER),
    Golden(
        "C7",
        K + "No broker in ISR is alive for a-b-0-3. Elect leader 2 from live brokers 2,3. There's potential data loss.",
        TP | {"leader": 2, "brokers": [2, 3], "unclean": True},
        CONTROLLER,
        "WARN",
    ),
    Golden(
        "C7",
        "[OfflinePartitionLeaderSelector]: No broker in ISR is alive for [a-b-0,3]. Elect leader 2 from live "
        "brokers 2. There's potential data loss.",
        TP | {"leader": 2},
        CONTROLLER,
        "WARN",
    ),
    Golden(
        "C8a",
        K + "New topics: [Set(a)], deleted topics: [Set()], new partition replica assignment [Map(a-0 -> "
        "Vector(1, 2))]",
        {"controller": 1},
        CONTROLLER,
    ),
    Golden(
        "C8a-2.8",
        K + "New topics: [HashSet(a)], deleted topics: [HashSet()], new partition replica assignment [Set("
        "TopicIdReplicaAssignment(a,Some(AbC-dEf_GhIjKlMnOpQrSt),Map(a-0 -> ReplicaAssignment(replicas=2, "
        "addingReplicas=, removingReplicas=))))]",
        {"controller": 1},
        CONTROLLER,
    ),
    Golden("C8b", K + "New partition creation callback for a-b-0-3,c-1", {"text": "a-b-0-3,c-1"}, CONTROLLER),
    Golden("C9a", K + "Starting topic deletion for topics a,b", {"topic": "a,b"}, CONTROLLER),
    Golden(
        "C9b", "[Topic Deletion Manager 1] Handling deletion for topics a", {"topic": "a", "speaker": 1}, CONTROLLER
    ),
    Golden("C9c", "[Topic Deletion Manager 1] Deletion of topic a (re)started", {"topic": "a"}, CONTROLLER),
    Golden("C9d", "[Topic Deletion Manager 1], Deletion of topic a successfully completed", {"topic": "a"}, CONTROLLER),
    Golden("C9e", "[Topic Deletion Manager 1] Halted deletion of topics a", {"topic": "a", "reason": None}, CONTROLLER),
    Golden(
        "C9e",
        "[Topic Deletion Manager 1] Halted deletion of topics a,b due to replica deletion failed",
        {"topic": "a,b", "reason": "replica deletion failed"},
        CONTROLLER,
    ),
    Golden(
        "C9g",
        "[Topic Deletion Manager 1] Not retrying deletion of topic a.b at this time since it is marked ineligible for "
        "deletion",
        {"topic": "a.b", "reason": "it is marked ineligible for deletion", "speaker": 1},
        CONTROLLER,
    ),
    Golden(
        "C9h",
        "[Topic Deletion Manager 1] Deletion failed for replicas [Topic=a,Partition=0,Replica=3]. Halting deletion for "
        "topics Set(a)",
        {"topic": "a", "text": "[Topic=a,Partition=0,Replica=3]"},
        CONTROLLER,
        "DEBUG",
    ),
    Golden(
        "C9f",
        "[ReplicaStateMachine controllerId=1] Dead Replicas ([Topic=a,Partition=0,Replica=3]) found for topic a",
        {"topic": "a"},
        CONTROLLER,
        "DEBUG",
    ),
    Golden(
        "C10a",
        K + "Handling reassignment of partition a-b-0-3 to new replicas List(4, 5)",
        TP | {"replicas": [4, 5]},
        CONTROLLER,
    ),
    Golden(
        "C10b",
        K + "2/3 replicas have caught up with the leader for partition a-b-0-3 being reassigned. Replica(s) 5 "
        "still need to catch up",
        TP | {"count": 2, "count_also": 3},
        CONTROLLER,
    ),
    Golden(
        "C10c",
        K + "Target replicas ArrayBuffer(4, 5) have all caught up with the leader for reassigning partition a-b-0-3",
        TP | {"replicas": [4, 5]},
        CONTROLLER,
    ),
    Golden("C10d", K + "Updated leader epoch for partition a-b-0-3 to 8", TP | {"leader_epoch": 8}, CONTROLLER),
    Golden(
        "C10e",
        K + "Leader 2 for partition a-b-0-3 being reassigned, is already in the new list of replicas 2,13 and is alive",
        TP | {"leader": 2, "replicas": [2, 13], "strategy": None},
        CONTROLLER,
    ),
    Golden(
        "C10f",
        K + "Leader 2 for partition a-b-0-3 being reassigned, is not in the new list of replicas 1,13. Re-electing "
        "leader",
        TP
        | {
            "leader": 2,
            "replicas": [1, 13],
            "strategy": "reassign",
            "reason": "is not in the new list of replicas 1,13. Re-electing leader",
        },
        CONTROLLER,
    ),
    Golden(
        "C10f",
        "[Controller 1]: Leader 2 for partition [a-b-0,3] being reassigned, is already in the new list of replicas "
        "2,13 but is dead",
        TP | {"leader": 2, "replicas": [2, 13], "strategy": "reassign"},
        CONTROLLER,
    ),
    Golden(
        "C10g",
        K + "Updated assigned replicas for partition a-b-0-3 being reassigned to 4,5,1 ",
        TP | {"replicas": [4, 5, 1], "adding": None},
        CONTROLLER,
    ),
    Golden(
        "C10g-2.4",
        K + "Updated assigned replicas for partition a-b-0-3 being reassigned to 4,5 (addingReplicas: 4, "
        "removingReplicas: )",
        TP | {"replicas": [4, 5], "adding": [4], "removing": []},
        CONTROLLER,
    ),
    Golden(
        "C10k",
        K + "Updated assigned replicas for partition a-b-0-3 being reassigned to 4,5 (addingReplicas: , "
        "removingReplicas: )",
        TP | {"replicas": [4, 5], "adding": [], "removing": []},
        CONTROLLER,
    ),
    Golden(
        "C10h",
        K + "Successfully updated assignment of partition a-b-0-3 to ReplicaAssignment(replicas=4,5,1, "
        "addingReplicas=4,5, removingReplicas=1)",
        TP | {"replicas": [4, 5, 1], "adding": [4, 5], "removing": [1]},
        CONTROLLER,
    ),
    Golden(
        "C10h",
        K + "Successfully updated assignment of partition a-b-0-3 to ReplicaAssignment(replicas=4,5, addingReplicas=, "
        "removingReplicas=)",
        TP | {"replicas": [4, 5], "adding": [], "removing": []},
        CONTROLLER,
    ),
    Golden(
        "C10i",
        K + "Error completing reassignment of partition a-b-0-3",
        TP | {"strategy": "reassign", "error": "kafka.common.KafkaException", "reason": "Only 4 of 4,5 are alive"},
        CONTROLLER,
        "ERROR",
        "kafka.common.KafkaException: Only 4 of 4,5 are alive",
    ),
    Golden(
        "C10i",
        K + "Error completing reassignment of partition a-b-0-3 because controller has moved to another broker",
        TP | {"strategy": "reassign", "reason": "controller has moved to another broker"},
        CONTROLLER,
        "ERROR",
    ),
    Golden(
        "C10j",
        K + "Failed completing reassignment of partition a-b-0-3 because controller has moved to another broker",
        TP | {"strategy": "reassign", "reason": "controller has moved to another broker"},
        CONTROLLER,
    ),
    Golden(
        "C11-2.7",
        K + "ISR for partition a-b-0-3 updated to [2,13] and zkVersion updated to [12]",
        TP | {"isr": [2, 13], "partition_epoch": 12, "leader": None, "controller": 1},
        CONTROLLER,
        "DEBUG",
    ),
    Golden(
        "C11b",
        K + "Failed to update ISR for partition a-b-0-3",
        TP | {"error": "org.apache.zookeeper.KeeperException$SessionExpiredException", "reason": None},
        CONTROLLER,
        "ERROR",
        "org.apache.zookeeper.KeeperException$SessionExpiredException",
    ),
    Golden(
        "C11c",
        K + "Failed to update ISR to LeaderAndIsr(leader=2, leaderEpoch=7, isr=List(2), leaderRecoveryState=RECOVERED, "
        "partitionEpoch=12) for partition a-b-0-3, bad ZK version.",
        TP | {"reason": "bad ZK version"},
        CONTROLLER,
    ),
    Golden(
        "C11",
        K + "ISR for partition a-b-0-3 updated to LeaderAndIsr(leader=2, leaderEpoch=7, isr=List(2, 3), "
        "leaderRecoveryState=RECOVERED, partitionEpoch=12).",
        TP | {"leader": 2, "isr": [2, 3], "partition_epoch": 12},
        CONTROLLER,
        "DEBUG",
    ),
    Golden(
        "C11",
        K + "ISR for partition a-b-0-3 updated to LeaderAndIsr(leader=2, leaderEpoch=7, isrWithBrokerEpoch=List("
        "BrokerState(brokerId=2, brokerEpoch=-1)), leaderRecoveryState=RECOVERED, partitionEpoch=12).",
        TP | {"leader": 2, "isr": [2], "recovery": "RECOVERED", "partition_epoch": 12},
        CONTROLLER,
        "DEBUG",
    ),
    Golden("C3b", K + "Currently active brokers in the cluster: Set(1, 2)", {"brokers": [1, 2]}, CONTROLLER),
    Golden(
        "S7d",
        "[RequestSendThread controllerId=1] Controller 1 epoch 5 fails to send request (type: UpdateMetadataRequest=, "
        "brokerEpoch=7) to broker host-2:9092 (id: 2 rack: null). Reconnecting to broker.",
        {
            "speaker": 1,
            "controller_epoch": 5,
            "broker": 2,
            "error": "java.io.IOException",
            "reason": "Connection to 2 was disconnected before the response was read",
        },
        CONTROLLER,
        "WARN",
        "java.io.IOException: Connection to 2 was disconnected before the response was read\n\tat x.y(Z.java:1)",
    ),
    Golden(
        "S7e",
        "[Channel manager on controller 1]: Not sending request (type=StopReplicaRequest, controllerId=1, "
        "controllerEpoch=5, deletePartitions=false, partitions=a-b-0-3) to broker 13, since it is offline.",
        {"speaker": 1, "controller": 1, "broker": 13, "request": "STOP_REPLICA", "reason": "it is offline"},
        CONTROLLER,
        "WARN",
    ),
    Golden(
        "S7e",
        "[Channel manager on controller 1]: Not sending request (type=LeaderAndIsRequest, controllerId=1, "
        "controllerEpoch=5, partitionStates={}, liveLeaders=()) to broker 13, since it is offline.",
        {"broker": 13, "request": "LEADER_AND_ISR"},
        CONTROLLER,
        "WARN",
    ),
    Golden(
        "S7e",
        "[Channel manager on controller 1]: Not sending request Name: UpdateMetadataRequest; Version: 0; "
        "CorrelationId: 9 to broker 13, since it is offline.",
        {"broker": 13, "request": "UPDATE_METADATA"},
        CONTROLLER,
        "WARN",
    ),
    Golden(
        "B8b",
        B + "Received LeaderAndIsrRequest with correlation id 77 from controller 1 epoch 5 for partition a-b-0-3 (last "
        "update controller epoch 5) but cannot become follower since the new leader -1 is unavailable.",
        _B | TP | {"leader": -1, "correlation_id": 77, "controller_epoch": 5},
        level="ERROR",
    ),
    # -- server.log ----------------------------------------------------------------------------------------------------
    Golden(
        "I1",
        "[Partition a-b-0-3 broker=2] Shrinking ISR from 1,2,3 to 2",
        _B | TP | {"prev_isr": [1, 2, 3], "isr": [2], "high_watermark": None},
        PARTITION,
    ),
    Golden(
        "I1",
        "[Partition a-b-0-3 broker=2] Shrinking ISR from 1,2,3 to 2. Leader: (highWatermark: 990, endOffset: "
        "1000). Out of sync replicas: (brokerId: 1, endOffset: 990) (brokerId: 3, endOffset: 980).",
        _B | TP | {"high_watermark": 990, "log_end": 1000, "isr": [2]},
        PARTITION,
    ),
    Golden(
        "I2",
        "[Partition a-b-0-3 broker=2] Expanding ISR from 2 to 2,3",
        _B | TP | {"prev_isr": [2], "isr": [2, 3]},
        PARTITION,
    ),
    Golden(
        "I3",
        "[Partition a-b-0-3 broker=2] ISR updated to 2,3 and version updated to 13",
        _B | TP | {"isr": [2, 3], "partition_epoch": 13},
        PARTITION,
    ),
    Golden(
        "I3",
        "[Partition a-b-0-3 broker=2] ISR updated to 2 (under-min-isr) and version updated to 13",
        _B | TP | {"isr": [2], "partition_epoch": 13},
        PARTITION,
    ),
    Golden(
        "I4",
        "[Partition a-b-0-3 broker=2] Cached zkVersion [12] not equal to that in zookeeper, skip updating ISR",
        _B | TP | {"partition_epoch": 12},
        PARTITION,
    ),
    Golden(
        "I5",
        "[UnifiedLog partition=a-b-0-3, dir=/data/kafka] Truncating to offset 1000",
        TP | {"log_end": 1000},
        "kafka.log.UnifiedLog",
    ),
    Golden(
        "N4",
        "[ReplicaManager broker=2] Broker 2 stopped fetcher for partitions a-b-0-3,c-1 and stopped moving logs for "
        "partitions c-2 because they are in the failed log directory /data/1.",
        _B | {"broker": 2, "text": "a-b-0-3,c-1", "reason": "they are in the failed log directory /data/1."},
        "kafka.server.ReplicaManager",
        "WARN",
    ),
    Golden("I5-1.0", "Truncating log a-b-0-3 to offset 1000.", TP | {"log_end": 1000}, "kafka.log.Log"),
    # -- sessions, and brokers that stop responding --------------------------------------------------------------------
    Golden(
        "N1",
        "Session establishment complete on server zk1/10.0.0.7:2181, session id = 0x10000103cc30003, "
        "negotiated timeout = 18000",
        {"took_ms": 18_000},
        CLIENT,
    ),
    Golden(
        "N1",
        "Session establishment complete on server zk1/10.0.0.7:2181, sessionid = 0x15d, negotiated timeout = 6000",
        {"took_ms": 6_000},
        CLIENT,
    ),
    Golden(
        "N2",
        "[ReplicaFetcher replicaId=3, leaderId=2, fetcherId=0] Cancelled in-flight FETCH request with correlation id "
        "729 due to node 2 being disconnected (elapsed time since creation: 8919ms, elapsed time since send: 8918ms, "
        "throttle time: 0ms, request timeout: 30000ms)",
        {"broker": 2, "took_ms": 8_918},
        "org.apache.kafka.clients.NetworkClient",
    ),
    Golden(
        "N3",
        "[ReplicaFetcher replicaId=3, leaderId=2, fetcherId=0] Error sending fetch request (sessionId=INVALID, "
        "epoch=INITIAL) to node 2:",
        {"broker": 2, "error": "java.io.IOException", "reason": "Connection to 10.0.0.2:9092 failed"},
        "org.apache.kafka.clients.FetchSessionHandler",
        continued="java.io.IOException: Connection to 10.0.0.2:9092 failed",
    ),
    Golden(
        "I1-0.8",
        "Partition [a-b-0,3] on broker 2: Shrinking ISR for partition [a-b-0,3] from 1,2 to 2",
        _B | TP | {"prev_isr": [1, 2], "isr": [2]},
        PARTITION,
    ),
    Golden(
        "I2-0.8",
        "Partition [a-b-0,3] on broker 2: Expanding ISR for partition [a-b-0,3] from 2 to 2,1",
        _B | TP | {"isr": [2, 1]},
        PARTITION,
    ),
    Golden(
        "I1-0.8",
        "Partition [a-b-0,3] on broker 2: Shrinking ISR from 1,2,3 to 2,3",
        _B | TP | {"prev_isr": [1, 2, 3], "isr": [2, 3]},
        PARTITION,
    ),
    Golden(
        "I2-0.8",
        "Partition [a-b-0,3] on broker 2: Expanding ISR from 2 to 2,3",
        _B | TP | {"prev_isr": [2], "isr": [2, 3]},
        PARTITION,
    ),
    Golden(
        "I3-0.8",
        "Partition [a-b-0,3] on broker 2: ISR updated to [2,3] and zkVersion updated to [13]",
        _B | TP | {"isr": [2, 3], "partition_epoch": 13},
        PARTITION,
        "TRACE",
    ),
    Golden(
        "I4-0.8",
        "Partition [a-b-0,3] on broker 2: Cached zkVersion [12] not equal to that in zookeeper, skip updating ISR",
        _B | TP | {"partition_epoch": 12},
        PARTITION,
    ),
    Golden(
        "B6-0.11",
        "Partition [a-b-0,3] on broker 2: a-b-0-3 starts at Leader Epoch 7 from offset 1000. Previous Leader Epoch "
        "was: 6",
        _B | TP | {"leader_epoch": 7, "log_end": 1000, "prev_leader_epoch": 6},
        PARTITION,
    ),
    # -- KRaft ---------------------------------------------------------------------------------------------------------
    Golden(
        "K1",
        Q + "Becoming the active controller at epoch 5, next write offset 1234.",
        {"speaker": 3000, "controller": 3000, "controller_epoch": 5},
        QUORUM,
    ),
    Golden("K2", Q + "In the new epoch 5, the leader is 3001.", {"controller": 3001, "controller_epoch": 5}, QUORUM),
    Golden(
        "K2",
        Q + "In the new epoch 5, the leader is (none).",
        {"speaker": 3000, "controller": None, "controller_epoch": 5},
        QUORUM,
    ),
    Golden(
        "K3",
        Q + "Fencing broker 2 because its session has timed out.",
        {"broker": 2, "reason": "its session has timed out."},
        QUORUM,
    ),
    Golden(
        "K4",
        Q + "The request from broker 2 to unfence has been granted because it has caught up with the offset of "
        "its register broker record 99.",
        {"broker": 2, "broker_epoch": 99},
        QUORUM,
    ),
    Golden(
        "K5",
        Q + "Replayed PartitionRecord for new partition a-b-0-3 with topic ID AbC-dEf_GhIjKlMnOpQrSt and "
        "PartitionRegistration(replicas=[1, 2], directories=[x, y], isr=[1, 2], removingReplicas=[], "
        "addingReplicas=[], elr=[], lastKnownElr=[], leader=1, leaderRecoveryState=RECOVERED, leaderEpoch=0, "
        "partitionEpoch=0).",
        TP | {"replicas": [1, 2], "isr": [1, 2], "leader": 1, "leader_epoch": 0},
        QUORUM,
    ),
    Golden(
        "K6a",
        Q + "UNCLEAN partition change for a-b-0-3 with topic ID AbC-dEf_GhIjKlMnOpQrSt: isr: [1] -> [2], "
        "leader: 1 -> 2, leaderEpoch: 3 -> 4, partitionEpoch: 7 -> 8",
        TP
        | {
            "unclean": True,
            "prev_isr": [1],
            "isr": [2],
            "prev_leader": 1,
            "leader": 2,
            "prev_leader_epoch": 3,
            "leader_epoch": 4,
            "prev_partition_epoch": 7,
            "partition_epoch": 8,
        },
        QUORUM,
    ),
    Golden(
        "K6b",
        Q + "partition change for a-b-0-3 with topic ID AbC-dEf_GhIjKlMnOpQrSt: isr: [1, 2] -> [1], "
        "partitionEpoch: 7 -> 8",
        TP | {"unclean": False, "isr": [1], "leader": None, "partition_epoch": 8},
        QUORUM,
        "DEBUG",
    ),
    Golden(
        "K7",
        Q + "Setting new leader for topicId AbC-dEf_GhIjKlMnOpQrSt, partition 3 to 2 using an unclean election",
        {"topic_id": "AbC-dEf_GhIjKlMnOpQrSt", "partition": 3, "leader": 2, "unclean": True},
        QUORUM,
    ),
    Golden(
        "K8",
        Q + "Triggering unclean leader election for offline partition a-b-0-3.",
        TP | {"unclean": True},
        QUORUM,
        "ERROR",
    ),
    Golden(
        "K9",
        Q + "Exceptionally slow controller event registerBroker took 2123 ms.",
        {"took_ms": 2123, "text": "registerBroker"},
        QUORUM,
        "ERROR",
    ),
    Golden(
        "K4",
        Q + "The request from broker 2 to unfence has been granted because it has caught up with the offset of it's "
        "register broker record 99.",
        {"broker": 2, "broker_epoch": 99},
        QUORUM,
    ),
    Golden("K11", Q + "Unfenced broker 2 has requested and been granted a controlled shutdown.", {"broker": 2}, QUORUM),
    Golden("K11", Q + "Unfenced broker 2 has requested and been granted an immediate shutdown.", {"broker": 2}, QUORUM),
    Golden("K12", Q + "Unfenced broker 2 has requested and been granted fencing", {"broker": 2}, QUORUM),
    Golden("K10", Q + "Renouncing the leadership due to a metadata log event.", {"controller": 3000}, QUORUM, "WARN"),
    # -- 0.8 to 0.11 ---------------------------------------------------------------------------------------------------
    Golden(
        "P0a",
        "Controller 1 epoch 5 changed partition [a-b-0,3] from NewPartition to OnlinePartition with leader 2",
        _C | TP | {"leader": 2},
        level="TRACE",
    ),
    Golden(
        "P0b",
        "Controller 1 epoch 5 changed partition [a-b-0,3] state from NonExistentPartition to NewPartition with "
        "assigned replicas 2,3",
        _C | TP | {"replicas": [2, 3]},
        level="TRACE",
    ),
    Golden(
        "P0b",
        "Controller 1 epoch 5 changed partition [a-b-0,3] state from OnlinePartition to OfflinePartition",
        _C | TP | {"replicas": None, "to_state": "OfflinePartition"},
        level="TRACE",
    ),
    Golden(
        "P0c",
        "Controller 1 epoch 5 elected leader 2 for Offline partition [a-b-0,3]",
        _C | TP | {"leader": 2},
        level="TRACE",
    ),
    Golden("P0d", "Controller 1 epoch 5 started leader election for partition [a-b-0,3]", _C | TP, level="TRACE"),
    Golden(
        "P0e",
        "Controller 1 epoch 5 initiated state change for partition [a-b-0,3] from OfflinePartition to "
        "OnlinePartition failed",
        _C | TP,
        level="ERROR",
    ),
    Golden(
        "P0f",
        "Controller 1 epoch 5 encountered error while electing leader for partition [a-b-0,3] due to: No other "
        "replicas in ISR 1 for [a-b-0,3].",
        _C | TP | {"reason": "No other replicas in ISR 1 for [a-b-0,3]."},
        level="ERROR",
    ),
    Golden(
        "R0a",
        "Controller 1 epoch 5 changed state of replica 3 for partition [a-b-0,3] from NewReplica to OnlineReplica",
        _C | TP | {"broker": 3},
        level="TRACE",
    ),
    Golden(
        "R0a",
        "Controller 1 epoch 5 changed state of replica 3 for partition [a-b-0,3] to OnlineReplica",
        _C | TP | {"broker": 3, "from_state": None, "to_state": "OnlineReplica"},
        level="TRACE",
    ),
    Golden(
        "R0b",
        "Controller 1 epoch 5 initiated state change of replica 3 for partition [a-b-0,3] to OfflineReplica failed",
        _C | TP | {"broker": 3, "from_state": None, "to_state": "OfflineReplica"},
        level="ERROR",
    ),
    Golden(
        "R0b",
        "Controller 1 epoch 5 initiated state change of replica 3 for partition [a-b-0,3] from OnlineReplica to "
        "ReplicaDeletionStarted failed",
        _C | TP | {"broker": 3},
        level="ERROR",
    ),
    Golden(
        "S0a",
        f"Controller 1 epoch 5 sending become-leader LeaderAndIsr request {_LEGACY_STATE} to broker 2 for "
        "partition [a-b-0,3]",
        _C | TP | {"leader": 2, "isr": [2, 3], "leader_epoch": 7, "broker": 2},
        level="TRACE",
    ),
    Golden(
        "S0a",
        f"Controller 1 epoch 5 sending become-follower LeaderAndIsr request {_LEGACY_STATE} with correlationId 77 to "
        "broker 3 for partition [a-b-0,3]",
        _C | TP | {"leader": 2, "to_state": "follower", "broker": 3, "correlation_id": 77},
        level="TRACE",
    ),
    Golden(
        "S0b",
        f"Controller 1 epoch 5 sending UpdateMetadata request {_LEGACY_STATE} to brokers Set(2, 3) for partition "
        "a-b-0-3",
        _C | TP | {"leader": 2, "brokers": [2, 3], "correlation_id": None},
        level="TRACE",
    ),
    Golden(
        "S0b",
        f"Controller 1 epoch 5 sending UpdateMetadata request {_LEGACY_STATE} with correlationId 77 to broker "
        "2 for partition [a-b-0,3]",
        _C | TP | {"leader": 2, "brokers": [2], "correlation_id": 77},
        level="TRACE",
    ),
    Golden(
        "S0c",
        "Controller 1 epoch 5 received response {error_code=0} for a request sent to broker host:9092 (id: 2 "
        "rack: null)",
        _C | {"broker": 2, "error": "NONE"},
        level="TRACE",
    ),
    Golden(
        "S0c",
        "Controller 1 epoch 5 received response correlationId 77 for a request sent to broker "
        "id:2,host:host-2,port:9092",
        _C | {"broker": 2, "correlation_id": 77, "error": None},
        level="TRACE",
    ),
    Golden(
        "S0c",
        "Controller 1 epoch 5 received response a.b.SomeResponse@1f2e3d for a request sent to broker Node(2, host-2, "
        "9092)",
        _C | {"broker": 2, "correlation_id": None},
        level="TRACE",
    ),
    Golden(
        "S0d",
        "Controller 1 epoch 5 sent LeaderAndIsr request (Leader:2,ISR:2,3,LeaderEpoch:7,ControllerEpoch:5) with new "
        "assigned replica list 2,3 to leader 2 for partition being reassigned [a-b-0,3]",
        _C | TP | {"request": "LEADER_AND_ISR"},
        level="TRACE",
    ),
    Golden(
        "S0e",
        "Controller 1 epoch 5 failed to send LeaderAndIsr request with new assigned replica list 2,3 to leader for "
        "partition being reassigned [a-b-0,3]",
        _C | TP | {"reason": "failed to send LeaderAndIsr request with new assigned replica list 2,3"},
        level="ERROR",
    ),
    Golden(
        "S7d-0.8",
        "[Controller-1-to-broker-2-send-thread], Controller 1 epoch 5 fails to send request "
        "Name:StopReplicaRequest;Version:0;CorrelationId:77;AliveBrokers:id:1,host:host-1,port:9092 to broker "
        "id:2,host:host-2,port:9092. Reconnecting to broker.",
        _C | {"broker": 2, "error": "java.io.EOFException", "reason": "The other side has closed it."},
        CONTROLLER,
        "WARN",
        "java.io.EOFException: The other side has closed it.\n\tat x.y(Z.scala:1)",
    ),
    Golden(
        "S7d-0.8",
        "[Controller-1-to-broker-2-send-thread], Controller 1 epoch 5 fails to send request {controller_id=1} to "
        "broker Node(2, host-2, 9092). Reconnecting to broker.",
        _C | {"broker": 2, "text": "{controller_id=1}"},
        CONTROLLER,
        "WARN",
    ),
    Golden(
        "C1a-0.8",
        "[Controller 1]: Broker 1 starting become controller state transition",
        {"speaker": 1, "controller": 1, "role": "controller"},
        CONTROLLER,
    ),
    Golden(
        "C2a-0.8",
        "[Controller 1]: Broker 1 is ready to serve as the new controller with epoch 5",
        _C,
        CONTROLLER,
    ),
    Golden(
        "C2c-0.8",
        "[Controller 1]: Broker 1 resigned as the controller",
        {"speaker": 1, "controller": 1, "role": "controller"},
        CONTROLLER,
    ),
    Golden(
        "C2e-0.8",
        "[SessionExpirationListener on 1], ZK expired; shut down all controller components and try to re-elect",
        {"speaker": 1, "controller": 1, "reason": "ZK expired"},
        f"{CONTROLLER}$SessionExpirationListener",
    ),
    Golden(
        "C6b-0.8",
        "[Controller 1]: leader imbalance ratio for broker 2 is 0.250000",
        {"controller": 1, "broker": 2, "ratio": 0.25},
        CONTROLLER,
        "TRACE",
    ),
    Golden(
        "C7a-0.8",
        "[OfflinePartitionLeaderSelector]: No broker in ISR is alive for [a-b-0,3]. Pick the leader from the alive "
        "assigned replicas: 2,3",
        TP | {"brokers": [2, 3], "unclean": True, "strategy": "offline"},
        SELECTOR,
        "DEBUG",
    ),
    Golden(
        "C7b-0.8",
        '[OfflinePartitionLeaderSelector]: Selected new leader and ISR {"leader":2,"leader_epoch":7,"isr":[2,3]} for '
        "offline partition [a-b-0,3]",
        TP | {"leader": 2, "leader_epoch": 7, "isr": [2, 3], "strategy": "offline", "unclean": None},
        SELECTOR,
    ),
    Golden(
        "C7c-0.8",
        "[PreferredReplicaPartitionLeaderSelector]: Current leader 3 for partition [a-b-0,3] is not the preferred "
        "replica. Trigerring preferred replica leader election",
        TP | {"prev_leader": 3, "strategy": "preferred"},
        "kafka.controller.PreferredReplicaPartitionLeaderSelector",
    ),
    Golden(
        "C7d-0.8",
        "[ControlledShutdownLeaderSelector]: Partition [a-b-0,3] : current leader = 3, new leader = 2",
        TP | {"prev_leader": 3, "leader": 2, "strategy": "controlled-shutdown"},
        "kafka.controller.ControlledShutdownLeaderSelector",
        "DEBUG",
    ),
    # -- 0.8 to 0.11: brokers ------------------------------------------------------------------------------------------
    Golden(
        "B0a",
        f"Broker 2 received LeaderAndIsr request {_LEGACY_STATE} correlation id 77 from controller 1 epoch 5 "
        "for partition [a-b-0,3]",
        _B | TP | {"controller": 1, "isr": [2, 3]},
        level="TRACE",
    ),
    Golden(
        "B0a-0.9",
        f"Broker 2 received LeaderAndIsr request {_STATE_0_10} correlation id 77 from controller 1 epoch 5 for "
        "partition [a-b-0,3]",
        _B | TP | _HELD | {"correlation_id": 77, "controller": 1, "controller_epoch": 5},
        level="TRACE",
    ),
    Golden(
        "B0a-0.9",
        f"Broker 2 received LeaderAndIsr request {_OLD_STATE} correlation id 77 from controller 1 epoch 5 for "
        "partition [a-b-0,3]",
        _B | TP | _HELD | {"is_new": False},
        level="TRACE",
    ),
    Golden(
        "B0b",
        "Broker 2 handling LeaderAndIsr request correlationId 77 from controller 1 epoch 5 starting the "
        "become-follower transition for partition a-b-0-3",
        _B | TP | {"to_state": "follower", "correlation_id": 77},
        level="TRACE",
    ),
    Golden(
        "B0c",
        "Broker 2 completed LeaderAndIsr request correlationId 77 from controller 1 epoch 5 for the become-leader "
        "transition for partition a-b-0-3",
        _B | TP | {"to_state": "leader"},
        level="TRACE",
    ),
    Golden(
        "B0d",
        f"Broker 2 cached leader info {_LEGACY_STATE} for partition a-b-0-3 in response to UpdateMetadata request sent "
        "by controller 1 epoch 5 with correlation id 77",
        _B | TP | {"leader": 2, "correlation_id": 77},
        level="TRACE",
    ),
    Golden(
        "B0b",
        "Broker 2 handling LeaderAndIsr request correlationId 77 from controller 1 epoch 5 starting the "
        "become-leader transition for partition [a-b-0,3]",
        _B | TP | {"to_state": "leader"},
        level="TRACE",
    ),
    Golden(
        "B0c",
        "Broker 2 completed LeaderAndIsr request correlationId 77 from controller 1 epoch 5 for the "
        "become-follower transition for partition [a-b-0,3]",
        _B | TP | {"to_state": "follower"},
        level="TRACE",
    ),
    Golden(
        "B0d",
        f"Broker 2 cached leader info {_LEGACY_STATE} for partition [a-b-0,3] in response to UpdateMetadata "
        "request sent by controller 1 epoch 5 with correlation id 77",
        _B | TP | {"leader": 2},
        level="TRACE",
    ),
    Golden(
        "B0e",
        "Broker 2 ignoring LeaderAndIsr request from controller 1 with correlation id 77 epoch 5 for partition "
        "[a-b-0,3] since its associated leader epoch 6 is old. Current leader epoch is 7",
        _B | TP,
        level="WARN",
    ),
    Golden(
        "B0e",
        "Broker 2 ignoring LeaderAndIsr request from controller 1 with correlation id 77 epoch 5 for partition "
        "[a-b-0,3] since its associated leader epoch 6 is not higher than the current leader epoch 7",
        _B | TP | {"leader_epoch": 6, "controller_epoch": 5, "request": "LEADER_AND_ISR"},
        level="WARN",
    ),
    Golden(
        "B0e",
        "Broker 2 ignoring LeaderAndIsr request from controller 1 with correlation id 77 since its controller epoch 5 "
        "is old. Latest known controller epoch is 6",
        _B
        | {
            "controller": 1,
            "controller_epoch": 5,
            "reason": "since its controller epoch 5 is old. Latest known controller epoch is 6",
        },
        level="WARN",
    ),
    Golden(
        "B0e",
        "Broker 2 ignoring LeaderAndIsr request from controller 1 with correlation id 77 epoch 5 for partition "
        "[a-b-0,3] as itself is not in assigned replica list 1,3",
        _B | TP | {"controller_epoch": 5, "reason": "as itself is not in assigned replica list 1,3"},
        level="WARN",
    ),
    Golden(
        "B0f",
        "Broker 2 received invalid LeaderAndIsr request with correlation id 77 from controller 1 epoch 5 with an older "
        "leader epoch 6 for partition [a-b-0,3], current leader epoch is 7",
        _B
        | TP
        | {
            "correlation_id": 77,
            "controller_epoch": 5,
            "leader_epoch": 6,
            "request": "LEADER_AND_ISR",
            "reason": "an older leader epoch 6 for partition [a-b-0,3], current leader epoch is 7",
        },
        level="WARN",
    ),
    Golden(
        "B0g",
        "Broker 2 received LeaderAndIsr request correlation id 5 with an old controller epoch 77. Latest known "
        "controller epoch is 6",
        _B | {"correlation_id": 77, "controller_epoch": 5},
        level="WARN",
    ),
    Golden(
        "B0h",
        "Broker 2 received stop replica request from an old controller epoch 5. Latest known controller epoch is 6",
        _B | {"request": "STOP_REPLICA", "controller_epoch": 5},
        level="WARN",
    ),
    Golden(
        "B0i",
        "Broker 2 received update metadata request with correlation id 77 from an old controller 1 with epoch 5. "
        "Latest known controller epoch is 6",
        _B
        | {
            "request": "UPDATE_METADATA",
            "correlation_id": 77,
            "controller": 1,
            "controller_epoch": 5,
            "reason": "an old controller 1 with epoch 5. Latest known controller epoch is 6",
        },
        level="WARN",
    ),
    Golden(
        "B0j",
        "Broker 2 received LeaderAndIsrRequest with correlation id 77 from controller 1 epoch 5 for partition "
        "[a-b-0,3] but cannot become follower since the new leader 3 is unavailable.",
        _B | TP | {"leader": 3, "correlation_id": 77, "controller_epoch": 5, "request": "LEADER_AND_ISR"},
        level="ERROR",
    ),
    Golden(
        "B0k",
        "Error on broker 2 while processing LeaderAndIsr request correlationId 77 received from controller 1 epoch 5 "
        "for partition [a-b-0,3]",
        _B
        | TP
        | {
            "role": "broker",
            "correlation_id": 77,
            "controller": 1,
            "controller_epoch": 5,
            "error": "java.io.IOException",
            "reason": "No space left",
        },
        level="ERROR",
        continued="java.io.IOException: No space left\n\tat x.y(Z.scala:1)",
    ),
    Golden(
        "B0k",
        "Error on broker 2 while processing LeaderAndIsr request with correlationId 77 received from controller 1 "
        "epoch 5",
        _B | {"topic": None, "correlation_id": 77},
        level="ERROR",
    ),
    Golden(
        "B0l",
        "Broker 2 deleted partition [a-b-0,3] from metadata cache in response to UpdateMetadata request sent by "
        "controller 1 epoch 5 with correlation id 77",
        _B | TP | {"leader": -2, "controller_epoch": 5},
        level="TRACE",
    ),
    Golden(
        "B0m",
        "Broker 2 handling stop replica (delete=true) for partition [a-b-0,3]",
        _B | TP | {"delete": True, "request": "STOP_REPLICA"},
        level="TRACE",
    ),
    Golden(
        "B0m",
        "Broker 2 handling stop replica for partition [a-b-0,3]",
        _B | TP | {"delete": None},
        level="TRACE",
    ),
)
