"""Lines of KRaft nodes, with their events: `KRAFT` of real nodes of Kafka 4.0 to 4.3, `OLDER` by hand.

`KRAFT` was recorded from clusters of the named version, with separate controllers and brokers. Meanwhile brokers and
controllers were killed, paused and stopped, partitions were reassigned, and elections were requested. The layout and
the time are omitted.
"""

from typing import Final

from .golden import QUORUM, STATE, TP, Golden

_CONTROL: Final = "org.apache.kafka.controller."
_RAFT: Final = "org.apache.kafka.raft.QuorumState"


KRAFT: Final = (
    # 4.1
    Golden(
        "K1",
        "[QuorumController id=3002] Becoming the active controller at epoch 1, next write offset 1.",
        {"speaker": 3002, "controller": 3002, "controller_epoch": 1, "role": "controller"},
        logger=_CONTROL + "QuorumController",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K2",
        "[QuorumController id=3001] In the new epoch 1, the leader is 3002.",
        {"speaker": 3001, "controller": 3002, "controller_epoch": 1},
        logger=_CONTROL + "QuorumController",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K3",
        "[QuorumController id=3002] Fencing broker 2 at epoch 8 because its session has timed out.",
        {"speaker": 3002, "controller": 3002, "broker": 2, "broker_epoch": 8, "reason": "its session has timed out."},
        logger=_CONTROL + "ReplicationControlManager",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K4",
        "[QuorumController id=3002] The request from broker 1 to unfence has been granted because it has caught "
        "up with the offset of its register broker record 10.",
        {"speaker": 3002, "controller": 3002, "broker": 1, "broker_epoch": 10},
        logger=_CONTROL + "BrokerHeartbeatManager",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K5",
        "[QuorumController id=3001] Replayed PartitionRecord for new partition e1-0 with topic ID "
        "djLIYCtyTf6UEXk_ccf_dQ and PartitionRegistration(replicas=[1, 2, 3], "
        "directories=[AAAAAAAAAAAAAAAAAAAAAQ, AAAAAAAAAAAAAAAAAAAAAQ, AAAAAAAAAAAAAAAAAAAAAQ], isr=[1, 2, 3], "
        "removingReplicas=[], addingReplicas=[], elr=[], lastKnownElr=[], leader=1, "
        "leaderRecoveryState=RECOVERED, leaderEpoch=0, partitionEpoch=0).",
        {
            "topic": "e1",
            "partition": 0,
            "topic_id": "djLIYCtyTf6UEXk_ccf_dQ",
            "replicas": [1, 2, 3],
            "isr": [1, 2, 3],
            "leader": 1,
            "leader_epoch": 0,
            "partition_epoch": 0,
        },
        logger=_CONTROL + "ReplicationControlManager",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K6a",
        "[QuorumController id=3001] UNCLEAN partition change for u1-0 with topic ID RTk8EawhTeS-92_xgpdeLQ: isr: "
        "[] -> [2], leader: -1 -> 2, leaderRecoveryState: RECOVERED -> RECOVERING, leaderEpoch: 3 -> 4, elr: [1] "
        "-> [], lastKnownElr: [1] -> [], partitionEpoch: 8 -> 9",
        {
            "topic": "u1",
            "partition": 0,
            "unclean": True,
            "prev_isr": [],
            "isr": [2],
            "prev_leader": -1,
            "leader": 2,
            "recovery": "RECOVERING",
            "prev_leader_epoch": 3,
            "leader_epoch": 4,
            "partition_epoch": 9,
        },
        logger=_CONTROL + "ReplicationControlManager",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K6b",
        "[QuorumController id=3001] partition change for t1-1 with topic ID J1nQrvQkTGSJrHTHm_fZVQ: replicas: "
        "[2, 3, 1] -> [3, 2, 1], directories: [cEjhhyKTRB7lM52pFcabfw, rl4NNMzFqsPM6wGtMk2WqA, "
        "8B_ZVeGtSVaErm3PBPfDCA] -> [rl4NNMzFqsPM6wGtMk2WqA, cEjhhyKTRB7lM52pFcabfw, 8B_ZVeGtSVaErm3PBPfDCA], "
        "partitionEpoch: 22 -> 23",
        {
            "topic": "t1",
            "partition": 1,
            "replicas": [3, 2, 1],
            "isr": None,
            "leader": None,
            "prev_partition_epoch": 22,
            "partition_epoch": 23,
        },
        logger=_CONTROL + "ReplicationControlManager",
        level="DEBUG",
    ),
    # 4.3
    Golden(
        "K6b",
        "[QuorumController id=3001] partition change for m1-1 with topic ID dEKds7lSSHeepqMMhu72lw: elr: [1] -> "
        "[], partitionEpoch: 9 -> 10",
        {"topic": "m1", "partition": 1, "isr": None, "leader": None, "partition_epoch": 10},
        logger=_CONTROL + "ReplicationControlManager",
        level="DEBUG",
    ),
    # 4.1
    Golden(
        "K6b",
        "[QuorumController id=3001] partition change for u1-1 with topic ID RTk8EawhTeS-92_xgpdeLQ: isr: [1] -> "
        "[], leader: 1 -> -1, leaderEpoch: 3 -> 4, elr: [] -> [1], lastKnownElr: [] -> [1], partitionEpoch: 8 -> "
        "9",
        {
            "topic": "u1",
            "partition": 1,
            "prev_isr": [1],
            "isr": [],
            "prev_leader": 1,
            "leader": -1,
            "leader_epoch": 4,
            "partition_epoch": 9,
            "unclean": False,
        },
        logger=_CONTROL + "ReplicationControlManager",
        level="DEBUG",
    ),
    # 4.0
    Golden(
        "K7",
        "Setting new leader for topicId ikMN3zIVSFmrfjki8PZEXw, partition 0 to 2 using an unclean election",
        {"topic_id": "ikMN3zIVSFmrfjki8PZEXw", "partition": 0, "leader": 2, "unclean": True, "strategy": "unclean"},
        logger=_CONTROL + "PartitionChangeBuilder",
        level="INFO",
    ),
    # 4.3
    Golden(
        "K7-4.1",
        "Setting new leader for topicId cGRxQup3QL2f9cdDdD0fNw, partition 0 to 2 using an unclean election. "
        "Previous partition: PartitionRegistration(replicas=[1, 2], directories=[WCY0G2If8XndxbacDvwBnA, "
        "p2EMhrgFuvM2uoRPbqwrjg], isr=[], removingReplicas=[], addingReplicas=[], elr=[1], lastKnownElr=[1], "
        "leader=-1, leaderRecoveryState=RECOVERED, leaderEpoch=3, partitionEpoch=9), change record: "
        "PartitionChangeRecord(partitionId=0, topicId=cGRxQup3QL2f9cdDdD0fNw, isr=null, leader=-2, "
        "replicas=null, removingReplicas=null, addingReplicas=null, leaderRecoveryState=-1, directories=null, "
        "eligibleLeaderReplicas=null, lastKnownElr=null)",
        {
            "topic_id": "cGRxQup3QL2f9cdDdD0fNw",
            "partition": 0,
            "leader": 2,
            "unclean": True,
            "replicas": [1, 2],
            "prev_isr": [],
            "prev_leader": -1,
            "prev_leader_epoch": 3,
            "prev_partition_epoch": 9,
        },
        logger=_CONTROL + "PartitionChangeBuilder",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K7b",
        "Setting new leader for topicId RTk8EawhTeS-92_xgpdeLQ, partition 1 to 2 using ELR. Previous partition: "
        "PartitionRegistration(replicas=[2, 1], directories=[cEjhhyKTRB7lM52pFcabfw, 8B_ZVeGtSVaErm3PBPfDCA], "
        "isr=[], removingReplicas=[], addingReplicas=[], elr=[2], lastKnownElr=[2], leader=-1, "
        "leaderRecoveryState=RECOVERED, leaderEpoch=11, partitionEpoch=20), change record: "
        "PartitionChangeRecord(partitionId=1, topicId=RTk8EawhTeS-92_xgpdeLQ, isr=null, leader=-2, "
        "replicas=null, removingReplicas=null, addingReplicas=null, leaderRecoveryState=-1, directories=null, "
        "eligibleLeaderReplicas=null, lastKnownElr=null)",
        {
            "topic_id": "RTk8EawhTeS-92_xgpdeLQ",
            "partition": 1,
            "leader": 2,
            "unclean": False,
            "strategy": "elr",
            "prev_isr": [],
            "prev_leader": -1,
            "prev_leader_epoch": 11,
            "prev_partition_epoch": 20,
        },
        logger=_CONTROL + "PartitionChangeBuilder",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K7c",
        "Setting new leader for topicId J1nQrvQkTGSJrHTHm_fZVQ, partition 5 to 3 using a clean election",
        {"topic_id": "J1nQrvQkTGSJrHTHm_fZVQ", "partition": 5, "leader": 3, "unclean": False},
        logger=_CONTROL + "PartitionChangeBuilder",
        level="TRACE",
    ),
    # 4.0
    Golden(
        "K8b",
        "[QuorumController id=3001] Cannot trigger unclean leader election for offline partition u1-0: "
        "ELIGIBLE_LEADERS_NOT_AVAILABLE",
        {
            "topic": "u1",
            "partition": 0,
            "error": "ELIGIBLE_LEADERS_NOT_AVAILABLE",
            "from_state": "OfflinePartition",
            "to_state": "OnlinePartition",
        },
        logger=_CONTROL + "ReplicationControlManager",
        level="WARN",
    ),
    # 4.3
    Golden(
        "K8b",
        "[QuorumController id=3001] Cannot trigger unclean leader election for offline partition u1-0: "
        "ELIGIBLE_LEADERS_NOT_AVAILABLE. (isr: [], replicaSet: [1, 2], partitionEpoch: 9, leaderEpoch: 3)",
        {
            "topic": "u1",
            "partition": 0,
            "error": "ELIGIBLE_LEADERS_NOT_AVAILABLE",
            "isr": [],
            "replicas": [1, 2],
            "partition_epoch": 9,
            "leader_epoch": 3,
        },
        logger=_CONTROL + "ReplicationControlManager",
        level="WARN",
    ),
    # 4.1
    Golden(
        "K9",
        "[QuorumController id=3003] Exceptionally slow controller event writeNoOpRecord took 68 ms.",
        {"speaker": 3003, "controller": 3003, "text": "writeNoOpRecord", "took_ms": 68},
        logger=_CONTROL + "EventPerformanceMonitor",
        level="ERROR",
    ),
    # 4.0
    Golden(
        "K10",
        "[QuorumController id=3001] Renouncing the leadership due to a metadata log event. We were the leader at "
        "epoch 5, but in the new epoch 7, the leader is 3002. Reverting to last stable offset 1030.",
        {"speaker": 3001, "controller": 3001, "controller_epoch": 5},
        logger=_CONTROL + "QuorumController",
        level="WARN",
    ),
    # 4.1
    Golden(
        "K10b",
        "[QuorumController id=3003] writeNoOpRecord: event failed with NotLeaderException (treated as "
        "NotControllerException) at epoch 3 in 409 microseconds. Renouncing leadership and reverting to the last "
        "committed offset 969. Exception message: Append failed because the replica is not the current leader",
        {
            "speaker": 3003,
            "controller": 3003,
            "controller_epoch": 3,
            "reason": "Append failed because the replica is not the current leader",
        },
        logger=_CONTROL + "QuorumController",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K11",
        "[QuorumController id=3001] Unfenced broker 2 has requested and been granted a controlled shutdown.",
        {"speaker": 3001, "controller": 3001, "broker": 2},
        logger=_CONTROL + "BrokerHeartbeatManager",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K13",
        "[QuorumController id=3001] enterControlledShutdown[2]: changing partition(s): u1-1, t1-5, t1-2, t1-1, "
        "m1-1, e1-0",
        {"broker": 2, "reason": "enterControlledShutdown", "text": "u1-1, t1-5, t1-2, t1-1, m1-1, e1-0"},
        logger=_CONTROL + "ReplicationControlManager",
        level="DEBUG",
    ),
    # 4.1
    Golden(
        "K13",
        "[QuorumController id=3001] handleBrokerFenced: changing partition(s): t1-4, t1-1, t1-0, t1-5, t1-2, "
        "m1-0, m1-2, e1-1",
        {"broker": None, "reason": "handleBrokerFenced"},
        logger=_CONTROL + "ReplicationControlManager",
        level="DEBUG",
    ),
    # 4.1
    Golden(
        "K13",
        "[QuorumController id=3001] handleDirectoriesOffline[2:65BeqeLgT44NLINO2wF2Zg]: changing partition(s): "
        "t1-0, t1-4, e1-1, u1-0, t1-3",
        {"broker": 2, "reason": "handleDirectoriesOffline"},
        logger=_CONTROL + "ReplicationControlManager",
        level="DEBUG",
    ),
    # 4.1
    Golden(
        "K13",
        "[QuorumController id=3001] handleBrokerUncleanShutdown: changing partition(s): t1-0",
        {"broker": None, "reason": "handleBrokerUncleanShutdown", "text": "t1-0"},
        logger=_CONTROL + "ReplicationControlManager",
        level="DEBUG",
    ),
    # 4.1
    Golden(
        "K13",
        "[QuorumController id=1] handleBrokerFenced: changing 11 partition(s)",
        {"speaker": 1, "broker": None, "reason": "handleBrokerFenced", "count": 11},
        logger=_CONTROL + "ReplicationControlManager",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K14",
        "[QuorumController id=3002] The request from broker 3 to shut down has been granted since the lowest "
        "active offset 190 is now greater than the broker's controlled shutdown offset 188.",
        {"broker": 3},
        logger=_CONTROL + "BrokerHeartbeatManager",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K15a",
        "[QuorumController id=3002] No previous registration found for broker 2. New incarnation ID is "
        "PTLuxh5SRDSeq5YvFUyqzg.  Generated 0 record(s) to clean up previous incarnations. New broker epoch is 8.",
        {"broker": 2, "broker_epoch": 8},
        logger=_CONTROL + "ClusterControlManager",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K15b",
        "[QuorumController id=3002] Registering a new incarnation of broker 2. Previous incarnation ID was "
        "PTLuxh5SRDSeq5YvFUyqzg; new incarnation ID is DFjiGAztR0i-kva5TL_5Zw. Generated 0 record(s) to clean up "
        "previous incarnations. Broker epoch will become 151.",
        {"broker": 2, "broker_epoch": 151},
        logger=_CONTROL + "ClusterControlManager",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K15c",
        "[QuorumController id=3002] Amending registration of broker 3, incarnation ID _bMA1e2rScyNht3qZwymYQ. "
        "Broker epoch remains 9.",
        {"broker": 3, "broker_epoch": 9},
        logger=_CONTROL + "ClusterControlManager",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K16",
        "[QuorumController id=3001] Replayed UnregisterBrokerRecord(brokerId=3, brokerEpoch=844)",
        {"broker": 3, "broker_epoch": 844},
        logger=_CONTROL + "ClusterControlManager",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K17",
        "[QuorumController id=3001] Directories [65BeqeLgT44NLINO2wF2Zg] in broker 2 marked offline, remaining "
        "directories: [cEjhhyKTRB7lM52pFcabfw]",
        {"broker": 2},
        logger=_CONTROL + "ReplicationControlManager",
        level="WARN",
    ),
    # 4.1
    Golden(
        "K18a",
        "[QuorumController id=3001] Replayed TopicRecord for topic t1 with topic ID J1nQrvQkTGSJrHTHm_fZVQ.",
        {"topic": "t1", "topic_id": "J1nQrvQkTGSJrHTHm_fZVQ"},
        logger=_CONTROL + "ReplicationControlManager",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K18b",
        "[QuorumController id=3001] Replayed partition assignment change PartitionChangeRecord(partitionId=0, "
        "topicId=L0SJO7cxRhmN_3PnBxSbzQ, isr=[1, 3], leader=1, replicas=[3, 1], removingReplicas=[], "
        "addingReplicas=[], leaderRecoveryState=-1, directories=[AAAAAAAAAAAAAAAAAAAAAQ, "
        "Z39VeUQJvIaCQpsVGfjbUg], eligibleLeaderReplicas=null, lastKnownElr=null) for topic m1",
        {
            "topic": "m1",
            "topic_id": "L0SJO7cxRhmN_3PnBxSbzQ",
            "partition": 0,
            "replicas": [3, 1],
            "removing": [],
            "adding": [],
        },
        logger=_CONTROL + "ReplicationControlManager",
        level="INFO",
    ),
    # 4.3
    Golden(
        "K18b",
        "[QuorumController id=3001] Replayed partition assignment change PartitionChangeRecord(partitionId=0, "
        "topicId=dEKds7lSSHeepqMMhu72lw, isr=[1, 3], leader=1, replicas=[3, 1], removingReplicas=[], "
        "addingReplicas=[], leaderRecoveryState=-1, directories=[AAAAAAAAAAAAAAAAAAAAAQ, "
        "WCY0G2If8XndxbacDvwBnA], eligibleLeaderReplicas=null, lastKnownElr=null) for topic m1. (isr: [1, 2] -> "
        "[1, 3], replicaSet: [3, 1, 2] -> [3, 1], partitionEpoch: 19, leaderEpoch: 8)",
        {"topic": "m1", "topic_id": "dEKds7lSSHeepqMMhu72lw", "partition": 0, "replicas": [3, 1]},
        logger=_CONTROL + "ReplicationControlManager",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K18c",
        "[QuorumController id=3001] Replayed RemoveTopicRecord for topic gone with ID RF-sC_KoR1mHjI_FVJ1ikQ.",
        {"topic": "gone", "topic_id": "RF-sC_KoR1mHjI_FVJ1ikQ"},
        logger=_CONTROL + "ReplicationControlManager",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K18d",
        "[QuorumController id=1] AlterPartition request from node 2 for m1-0 completed the ongoing partition "
        "reassignment and triggered a leadership change. Returning NEW_LEADER_ELECTED.",
        {"topic": "m1", "partition": 0},
        logger=_CONTROL + "ReplicationControlManager",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K19",
        "[QuorumController id=3002] In the last 20000 ms period, 221 controller events were completed, which "
        "took an average of 12.05 ms each. The slowest event was alterPartition(71605971), which took 80.08 ms.",
        {"count": 221, "took_ms": 80, "text": "alterPartition(71605971)"},
        logger=_CONTROL + "EventPerformanceMonitor",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K20a",
        "[RaftManager id=1] Completed transition to FollowerState(fetchTimeoutMs=2000, epoch=1, leader=3002, "
        "leaderEndpoints=Endpoints(endpoints={ListenerName(CONTROLLER)=/127.0.0.1:25448}), "
        "votedKey=Optional.empty, voters=[3001, 3002, 3003], highWatermark=Optional.empty, "
        "fetchingSnapshot=Optional.empty) from null",
        {"speaker": 1, "role": "broker", "controller": 3002, "controller_epoch": 1},
        logger="org.apache.kafka.raft.QuorumState",
        level="INFO",
    ),
    # 4.0
    Golden(
        "K20b",
        "[RaftManager id=3001] Completed transition to Leader(localReplicaKey=ReplicaKey(id=3001, "
        "directoryId=K0eFdHgAy9GTx9cROnD_ZQ), epoch=2, epochStartOffset=0, highWatermark=Optional.empty, "
        "voterStates={3001=ReplicaState(replicaKey=ReplicaKey(id=3001, directoryId=<undefined>), "
        "endOffset=Optional.empty, lastFetchTimestamp=-1, lastCaughtUpTimestamp=-1, hasAcknowledgedLeader=true), "
        "3002=ReplicaState(replicaKey=ReplicaKey(id=3002, directoryId=<undefined>), endOffset=Optional.empty, "
        "lastFetchTimestamp=-1, lastCaughtUpTimestamp=-1, hasAcknowledgedLeader=false), "
        "3003=ReplicaState(replicaKey=ReplicaKey(id=3003, directoryId=<undefined>), endOffset=Optional.empty, "
        "lastFetchTimestamp=-1, lastCaughtUpTimestamp=-1, hasAcknowledgedLeader=false)}) from "
        "CandidateState(localId=3001, localDirectoryId=K0eFdHgAy9GTx9cROnD_ZQ, epoch=2, retries=2, "
        "epochElection=EpochElection(voterStates={3001=VoterState(replicaKey=ReplicaKey(id=3001, "
        "directoryId=<undefined>), state=GRANTED), 3002=VoterState(replicaKey=ReplicaKey(id=3002, "
        "directoryId=<undefined>), state=UNRECORDED), 3003=VoterState(replicaKey=ReplicaKey(id=3003, "
        "directoryId=<undefined>), state=GRANTED)}), highWatermark=Optional.empty, electionTimeoutMs=1743)",
        {"speaker": 3001, "controller": 3001, "controller_epoch": 2},
        logger="org.apache.kafka.raft.QuorumState",
        level="INFO",
    ),
    # 4.3
    Golden(
        "K20b",
        "[RaftManager id=3001] Completed transition to "
        "Leader(localVoterNode=VoterNode(voterKey=ReplicaKey(id=3001, directoryId=2XZrJTC_PKAGocNkDKtgwA), "
        "listeners=Endpoints(endpoints={ListenerName(CONTROLLER)=127.0.0.1/<unresolved>:20962}), "
        "supportedKRaftVersion=SupportedVersionRange[min_version:0, max_version:1]), epoch=1, "
        "epochStartOffset=0, highWatermark=Optional.empty, "
        "voterStates={3001=ReplicaState(replicaKey=ReplicaKey(id=3001, directoryId=<undefined>), "
        "endOffset=Optional.empty, lastFetchTimestamp=-1, lastCaughtUpTimestamp=-1, hasAcknowledgedLeader=true), "
        "3002=ReplicaState(replicaKey=ReplicaKey(id=3002, directoryId=<undefined>), endOffset=Optional.empty, "
        "lastFetchTimestamp=-1, lastCaughtUpTimestamp=-1, hasAcknowledgedLeader=false), "
        "3003=ReplicaState(replicaKey=ReplicaKey(id=3003, directoryId=<undefined>), endOffset=Optional.empty, "
        "lastFetchTimestamp=-1, lastCaughtUpTimestamp=-1, hasAcknowledgedLeader=false)}) from "
        "CandidateState(localId=3001, localDirectoryId=2XZrJTC_PKAGocNkDKtgwA, epoch=1, "
        "epochElection=EpochElection[voterStates={3001=VoterState(replicaKey=ReplicaKey(id=3001, "
        "directoryId=<undefined>), state=GRANTED), 3002=VoterState(replicaKey=ReplicaKey(id=3002, "
        "directoryId=<undefined>), state=UNRECORDED), 3003=VoterState(replicaKey=ReplicaKey(id=3003, "
        "directoryId=<undefined>), state=GRANTED)}], highWatermark=Optional.empty, electionTimeoutMs=1281)",
        {"speaker": 3001, "controller": 3001, "controller_epoch": 1},
        logger="org.apache.kafka.raft.QuorumState",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K20c",
        "[RaftManager id=3002] Completed transition to ResignedState(localId=3002, epoch=1, voters=[3001, 3002, "
        "3003], electionTimeoutMs=1212, unackedVoters=[3001, 3003], preferredSuccessors=[]) from null",
        {"controller_epoch": 1, "to_state": "Resigned", "from_state": "null"},
        logger="org.apache.kafka.raft.QuorumState",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K20c",
        "[RaftManager id=3001] Completed transition to UnattachedState(epoch=0, leaderId=OptionalInt.empty, "
        "votedKey=Optional.empty, voters=[3001, 3002, 3003], electionTimeoutMs=0, highWatermark=Optional.empty) "
        "from ProspectiveState(epoch=0, leaderId=OptionalInt.empty, votedKey=Optional.empty, "
        "epochElection=EpochElection(voterStates={3001=VoterState(replicaKey=ReplicaKey(id=3001, "
        "directoryId=<undefined>), state=GRANTED), 3002=VoterState(replicaKey=ReplicaKey(id=3002, "
        "directoryId=<undefined>), state=UNRECORDED), 3003=VoterState(replicaKey=ReplicaKey(id=3003, "
        "directoryId=<undefined>), state=UNRECORDED)}), electionTimeoutMs=1378, highWatermark=Optional.empty)",
        {"controller_epoch": 0, "to_state": "Unattached", "from_state": "Prospective"},
        logger="org.apache.kafka.raft.QuorumState",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K21a",
        "[BrokerLifecycleManager id=1] Incarnation 0TzBd3_-Q4STXDorWv52Ww of broker 1 in cluster "
        "4L6g3nShT-eMCtK--X86sw is now STARTING.",
        {"speaker": 1, "broker": 1, "to_state": "STARTING"},
        logger="kafka.server.BrokerLifecycleManager",
        level="INFO",
    ),
    # 4.3
    Golden(
        "K21b",
        "[BrokerLifecycleManager id=1] Successfully registered broker 1 with broker epoch 12",
        {"speaker": 1, "broker": 1, "broker_epoch": 12},
        logger="org.apache.kafka.server.BrokerLifecycleManager",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K21c",
        "[BrokerLifecycleManager id=1] The broker has been unfenced. Transitioning from RECOVERY to RUNNING.",
        {"speaker": 1, "from_state": "RECOVERY", "to_state": "RUNNING"},
        logger="kafka.server.BrokerLifecycleManager",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K21d",
        "[BrokerLifecycleManager id=2] Beginning controlled shutdown.",
        {"speaker": 2, "to_state": "PENDING_CONTROLLED_SHUTDOWN"},
        logger="kafka.server.BrokerLifecycleManager",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K21e",
        "[BrokerLifecycleManager id=1] Transitioning from PENDING_CONTROLLED_SHUTDOWN to SHUTTING_DOWN.",
        {"from_state": "PENDING_CONTROLLED_SHUTDOWN", "to_state": "SHUTTING_DOWN"},
        logger="kafka.server.BrokerLifecycleManager",
        level="INFO",
    ),
    # 4.1
    Golden(
        "K22a",
        "[Broker id=2] Unable to bring up new local leader t1-4 with topic id J1nQrvQkTGSJrHTHm_fZVQ because it "
        "resides in an offline log directory.",
        {"speaker": 2, "topic": "t1", "partition": 4, "topic_id": "J1nQrvQkTGSJrHTHm_fZVQ", "to_state": "leader"},
        logger=STATE,
        level="WARN",
    ),
    # 4.1
    Golden(
        "K22b",
        "[Broker id=1] Unable to start fetching m1-1 with topic ID Some(L0SJO7cxRhmN_3PnBxSbzQ) from leader "
        "Some(-1) because it is not alive.",
        {"speaker": 1, "topic": "m1", "partition": 1, "leader": -1, "to_state": "follower"},
        logger=STATE,
        level="TRACE",
    ),
    # 4.3
    Golden(
        "B4-3.3",
        "[Broker id=1] Leader u1-0 with topic id Some(cGRxQup3QL2f9cdDdD0fNw) starts at leader epoch 0 from "
        "offset 0 with partition epoch 0, high watermark 0, ISR [1,2], adding replicas [] and removing replicas "
        "[] . Previous leader None and previous leader epoch was -1.",
        {
            "speaker": 1,
            "topic": "u1",
            "topic_id": "cGRxQup3QL2f9cdDdD0fNw",
            "partition": 0,
            "leader_epoch": 0,
            "isr": [1, 2],
        },
        logger=STATE,
        level="INFO",
    ),
    # 4.3
    Golden(
        "B5-3.3",
        "[Broker id=1] Follower t1-5 starts at leader epoch 0 from offset 0 with partition epoch 0 and high "
        "watermark 0. Current leader is 3. Previous leader None and previous leader epoch was -1.",
        {"speaker": 1, "topic": "t1", "partition": 5, "leader": 3},
        logger=STATE,
        level="INFO",
    ),
)

# Wordings of earlier versions, by hand after the versions' patterns.
OLDER: Final = (
    # 4.0 on
    Golden(
        "K20d",
        "[RaftManager id=2002] Completed transition to ProspectiveState(epoch=8, leaderId=OptionalInt[2001], "
        "votedKey=Optional.empty, epochElection=EpochElection(voterStates={2002=VoterState(replicaKey=ReplicaKey(id="
        "2002, directoryId=<undefined>), state=GRANTED)}), electionTimeoutMs=1322, highWatermark=Optional.empty) from "
        "FollowerState(fetchTimeoutMs=2000, epoch=8, leader=2001, voters=[2001, 2002])",
        {"speaker": 2002, "controller_epoch": 8, "to_state": "Prospective", "from_state": "Follower"},
        logger=_RAFT,
    ),
    Golden(
        "K20c",
        "[RaftManager id=2001] Completed transition to ResignedState(localId=2001, epoch=8, voters=[2001, 2002], "
        "electionTimeoutMs=1441, unackedVoters=[2002], preferredSuccessors=[2002]) from Leader(localId=2001, epoch=8, "
        "epochStartOffset=4711, voterStates={2001=ReplicaState(nodeId=2001)})",
        {"speaker": 2001, "controller_epoch": 8, "to_state": "Resigned", "from_state": "Leader"},
        logger=_RAFT,
    ),
    # Earlier voters do not print the state before.
    Golden(
        "K20c",
        "[RaftManager nodeId=6] Completed transition to Unattached(epoch=0, voters=[6, 7, 8], electionTimeoutMs=1520)",
        {"controller_epoch": 0, "to_state": "Unattached", "from_state": None},
        logger=_RAFT,
    ),
    Golden(
        "K20c",
        "[RaftManager nodeId=6] Completed transition to CandidateState(localId=6, epoch=3, retries=2, "
        "electionTimeoutMs=1288)",
        {"controller_epoch": 3, "to_state": "Candidate", "from_state": None},
        logger=_RAFT,
    ),
    # -- controllers up to 3.5 -----------------------------------------------------------------------------------------
    Golden(
        "K1-2.8",
        "[Controller 6] Becoming active at controller epoch 41.",
        {"speaker": 6, "controller": 6, "controller_epoch": 41, "role": "controller"},
        logger=QUORUM,
        level="WARN",
    ),
    Golden(
        "K1",
        "[Controller 6] Becoming the active controller at epoch 42, committed offset 8030 and committed epoch 40.",
        {"speaker": 6, "controller": 6, "controller_epoch": 42},
        logger=QUORUM,
    ),
    Golden(
        "K1",
        "[Controller 6] Becoming the active controller at epoch 42, new next write offset 8031.",
        {"speaker": 6, "controller": 6, "controller_epoch": 42},
        logger=QUORUM,
    ),
    Golden(
        "K1b",
        "[Controller 6] We were the leader in epoch 42, and are still the leader in the new epoch 43.",
        {"speaker": 6, "controller": 6, "controller_epoch": 43},
        logger=QUORUM,
        level="WARN",
    ),
    Golden(
        "K5-3.0",
        "[Controller 6] Created partition a-b-0-3 with topic ID AbC-dEf_GhIjKlMnOpQrSt and PartitionRegistration("
        "replicas=[4, 5], isr=[4, 5], removingReplicas=[], addingReplicas=[], leader=4, leaderRecoveryState=RECOVERED, "
        "leaderEpoch=0, partitionEpoch=0).",
        TP
        | {
            "topic_id": "AbC-dEf_GhIjKlMnOpQrSt",
            "replicas": [4, 5],
            "isr": [4, 5],
            "leader": 4,
            "leader_epoch": 0,
            "partition_epoch": 0,
            "recovery": "RECOVERED",
        },
        logger=_CONTROL + "ReplicationControlManager",
    ),
    Golden(
        "K5-2.8",
        "[Controller 6] Created partition AbC-dEf_GhIjKlMnOpQrSt:3 with PartitionControlInfo(replicas=[4, 5], "
        "isr=[4, 5], removingReplicas=null, addingReplicas=null, leader=4, leaderEpoch=0, partitionEpoch=0).",
        {
            "topic": None,
            "topic_id": "AbC-dEf_GhIjKlMnOpQrSt",
            "partition": 3,
            "replicas": [4, 5],
            "isr": [4, 5],
            "leader": 4,
            "leader_epoch": 0,
            "partition_epoch": 0,
        },
        logger=_CONTROL + "ReplicationControlManager",
    ),
    Golden(
        "K10-2.8",
        "[Controller 6] Renouncing the leadership at oldEpoch 42 due to a metadata log event. Reverting to last "
        "committed offset 8040.",
        {
            "speaker": 6,
            "controller": 6,
            "controller_epoch": 42,
            "reason": "due to a metadata log event. Reverting to last committed offset 8040.",
        },
        logger=QUORUM,
        level="WARN",
    ),
    Golden(
        "K10b",
        "[QuorumController id=6] completeActivation[44](7): event failed with IllegalStateException (treated as "
        "UnknownServerException) at epoch 44 in 911 microseconds. Renouncing leadership and reverting to the last "
        "committed offset 8051. Exception message: empty",
        {"controller": 6, "controller_epoch": 44, "error": "IllegalStateException", "reason": "empty"},
        logger=QUORUM,
    ),
    Golden(
        "K10b-2.8",
        "[Controller 6] writeNoOpRecord: failed with unknown server exception IllegalStateException at epoch 43 in "
        "612 us.  Renouncing leadership and reverting to the last committed offset 8044.",
        {
            "speaker": 6,
            "controller": 6,
            "controller_epoch": 43,
            "error": "IllegalStateException",
            "reason": "The queue is closed.",
        },
        logger=QUORUM,
        level="WARN",
        continued="java.lang.IllegalStateException: The queue is closed.\n\tat org.apache.kafka.X.y(X.java:1)",
    ),
    Golden(
        "K10b-2.8",
        "[Controller 6] org.apache.kafka.controller.QuorumController@4fe8a1c2: failed with unknown server exception "
        "IllegalStateException at epoch 43 in 612 us.  Reverting to last committed offset 8044.",
        {"controller": 6, "controller_epoch": 43, "error": "IllegalStateException"},
        logger=QUORUM,
        level="WARN",
    ),
    Golden(
        "K15d",
        "[Controller 6] Registered new broker: RegisterBrokerRecord(brokerId=4, isMigratingZkBroker=false, "
        "incarnationId=0TzBd3_-Q4STXDorWv52Ww, brokerEpoch=811, endPoints=[BrokerEndpoint(name='A', host='h', "
        "port=9092, securityProtocol=0)], features=[], rack=null, fenced=true, inControlledShutdown=false)",
        {"speaker": 6, "broker": 4, "broker_epoch": 811},
        logger=_CONTROL + "ClusterControlManager",
    ),
    Golden(
        "K15e",
        "[Controller 6] Re-registered broker incarnation: RegisterBrokerRecord(brokerId=4, incarnationId="
        "0TzBd3_-Q4STXDorWv52Ww, brokerEpoch=812, endPoints=[], features=[], rack=null)",
        {"speaker": 6, "broker": 4, "broker_epoch": 812},
        logger=_CONTROL + "ClusterControlManager",
    ),
    Golden(
        "K15e",
        "[Controller 6] Re-registered broker id 4: RegisterBrokerRecord(brokerId=4, incarnationId="
        "0TzBd3_-Q4STXDorWv52Ww, brokerEpoch=813, endPoints=[], features=[], rack=null, fenced=true)",
        {"speaker": 6, "broker": 4, "broker_epoch": 813},
        logger=_CONTROL + "ClusterControlManager",
    ),
    Golden(
        "K16-2.8",
        "[Controller 6] Unregistered broker: UnregisterBrokerRecord(brokerId=4, brokerEpoch=813)",
        {"speaker": 6, "broker": 4, "broker_epoch": 813},
        logger=_CONTROL + "ClusterControlManager",
    ),
    Golden(
        "K18a-2.8",
        "[Controller 6] Created topic a-b-0 with ID AbC-dEf_GhIjKlMnOpQrSt.",
        {"topic": "a-b-0", "topic_id": "AbC-dEf_GhIjKlMnOpQrSt"},
        logger=_CONTROL + "ReplicationControlManager",
    ),
    Golden(
        "K18a-2.8",
        "[Controller 6] Created topic a-b-0 with topic ID AbC-dEf_GhIjKlMnOpQrSt.",
        {"topic": "a-b-0", "topic_id": "AbC-dEf_GhIjKlMnOpQrSt"},
        logger=_CONTROL + "ReplicationControlManager",
    ),
    Golden(
        "K18c-2.8",
        "[Controller 6] Removed topic a-b-0 with ID AbC-dEf_GhIjKlMnOpQrSt.",
        {"topic": "a-b-0", "topic_id": "AbC-dEf_GhIjKlMnOpQrSt"},
        logger=_CONTROL + "ReplicationControlManager",
    ),
)
