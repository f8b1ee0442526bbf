"""A ZooKeeper controller's lines in controller.log: its election, brokers, topics, elections and reassignments."""

from typing import Final

from kactl.forensics.text.format import read_formats

FORMATS: Final = read_formats(
    r"""
{REPLICAS}
    (?:\w+\(|\[)?{replicas:ids}[\])]?
# The second form until 0.11.
{ANY_TP}
    (?:{TP}|\[{topic__2:name},{partition__2:int}\])

[controller]
# -- controllerships ---------------------------------------------------------------------------------------------------
C1a controller-elected since=0.11 until=2.0
    {controller:int} successfully elected as the controller
C1b controller-elected since=2.1
    {controller:int} successfully elected as the controller\. Epoch incremented to {controller_epoch:int} and epoch zk
    version is now \d+
C1c controller-epoch since=1.1 until=2.0
    Epoch incremented to {controller_epoch:int}
C1d controller-epoch until=1.0
    Incremented epoch to {controller_epoch:int}
C1e controller-epoch since=0.8 until=0.11
    Controller {controller:int} incremented epoch to {controller_epoch:int}
C2a controller-ready
    Ready to serve as the new controller with epoch {controller_epoch:int}
C2b controller-started
    Starting the controller scheduler
C2c controller-resigned
    Resigned
C2d controller-moved since=2.1
    Controller moved to another broker when processing {reason:rest}
# -- brokers -----------------------------------------------------------------------------------------------------------
C3 brokers-changed since=0.8
    Newly added brokers: {brokers_added:ids}, deleted brokers: {brokers_removed:ids},
    (?:bounced brokers: {brokers_bounced:ids}, )?all live brokers: {brokers:ids}
# Written by a new controller when it takes over.
C3b brokers-changed since=0.8
    Currently active brokers in the cluster: \w+\({brokers:ids}\)
C4a broker-failed since=0.8
    Broker failure callback for (?:\w+\()?{brokers_removed:ids}\)?
C4b broker-started since=0.8
    New broker startup callback for (?:\w+\()?{brokers_added:ids}\)?
C4c broker-no-longer-stopping since=0.8
    Removed (?:\w+\()?(?:{broker:int}|(?P<brokers>\d[\d, ]*))\)? from list of shutting down brokers\.
C4d broker-stopping since=0.8
    Shutting down broker {broker:int}
# -- elections ---------------------------------------------------------------------------------------------------------
C5a election-asked since=0.8 until=2.3 strategy=preferred
    Starting preferred replica leader election for partitions ?{text:rest}
C5b election-asked since=2.4
    Starting replica leader election \((?P<strategy>PREFERRED|UNCLEAN)\) for partitions {text:rest} triggered by
    {trigger:word}
C6a balance-checked
    Processing automatic preferred replica leader election
C6b imbalance
    Leader imbalance ratio for broker {broker:int} is (?P<ratio>[\d.]+(?:E-?\d+)?|NaN)
C6c unclean-enabled
    Unclean leader election has been enabled (?:by default|for topic {topic:name})
# From 1.1 on, no line marks an unclean election.
C7 elected since=0.8 until=1.0 strategy=offline unclean=true
    No broker in ISR is alive for {ANY_TP}\. Elect leader {leader:int} from live
    brokers {brokers:ids}\. There's potential data loss\.
# The results of preferred elections. Their reasons are in the first line of the stack trace; see `parser._add_joined`.
C12a partition-failed since=2.2 until=2.3 strategy=preferred to_state=OnlinePartition
    Error completing preferred replica leader election for partition {TP}
C12b partition-failed since=2.4 to_state=OnlinePartition
    Error completing replica leader election \((?P<strategy>PREFERRED|UNCLEAN)\) for partition {TP}\
    (?: because {reason:rest}\.)?
C12c partition-failed since=0.8 until=1.0 strategy=preferred to_state=OnlinePartition
    Partition {ANY_TP} failed to complete preferred replica leader election\. Leader is {leader:int}
C12d partition-failed since=1.1 strategy=preferred to_state=OnlinePartition
    Partition {TP} failed to complete preferred replica leader election to {broker:int}\. Leader is still {leader:int}
C12e elected since=0.8 strategy=preferred
    Partition {ANY_TP} completed preferred replica leader election\. New leader is {leader:int}
# From 2.7 on, leaders send ISR changes to the controller, which writes them.
C11-2.7 isr-updated since=2.7 until=3.2
    ISR for partition {TP} updated to \[{isr:ids}\] and zkVersion updated to \[{partition_epoch:int}\]
C11b isr-refused since=2.7
    Failed to update ISR for partition {TP}
C11c isr-refused since=2.7
    Failed to update ISR to .* for partition {TP}, (?P<reason>bad ZK version)\.
C11 isr-updated since=3.3
    ISR for partition {TP} updated to LeaderAndIsr\(leader={leader:int},
    leaderEpoch={leader_epoch:int}(?:, (?:isUncleanLeader={unclean:bool}|linkedLeaderEpoch=[^,]*))*,
    (?:isr=\w+\({isr:ids}\)|isrWithBrokerEpoch=\w+\((?P<isr__2>(?:BrokerState\([^)]*\)(?:, )?)*)\))\
    (?:, leaderRecoveryState={recovery:word})?, (?:zkVersion|partitionEpoch)={partition_epoch:int}\)\.?
# -- topics ------------------------------------------------------------------------------------------------------------
C8a topics-changed since=0.8
    New topics: (?P<text>(?!.*TopicIdReplicaAssignment\().* deleted topics: .* new partition replica assignment .*)
C8a-2.8 topics-changed since=2.8
    New topics: (?P<text>(?=.*TopicIdReplicaAssignment\().* deleted topics: .* new partition replica assignment .*)
C8b partitions-created since=0.8
    New partition creation callback for ?{text:rest}
C9a deletion-asked since=0.8
    Starting topic deletion for topics {topic:rest}
C9b deletion-handled since=0.8
    Handling deletion for topics {topic:rest}
C9c deletion-started since=0.8
    Deletion of topic {topic:name} \(re\)started
C9d deletion-done since=0.8
    Deletion of topic {topic:name} successfully completed
C9e deletion-halted since=0.8
    Halted deletion of topics (?P<topic>[\w.,-]+)(?: due to {reason:rest})?
# Its replicas are unavailable or being reassigned, or a previous attempt failed.
C9g deletion-halted since=0.8
    Not retrying deletion of topic {topic:name} at this time since (?P<reason>it is marked ineligible for deletion)
C9h deletion-dead-replicas since=0.8
    Deletion failed for replicas {text:rest}\. Halting deletion for topics (?:\w+\()?(?P<topic>[\w., -]+)\)?
C9f deletion-dead-replicas since=0.8
    Dead Replicas \({text:rest}\) found for topic {topic:name}
# -- reassignments -----------------------------------------------------------------------------------------------------
C10a reassignment-started
    Handling reassignment of partition {TP} to new replicas {REPLICAS}
C10b reassignment-waits
    {count:int}/{count_also:int} replicas have caught up with the leader for partition {TP} being
    reassigned{reason:rest}
C10c reassignment-caught-up since=2.4
    Target replicas {REPLICAS} have all caught up with the leader for reassigning partition {TP}
C10d epoch-raised
    Updated leader epoch for partition {TP} to {leader_epoch:int}
# The target has caught up; the leader may have to be replaced.
C10e reassignment-caught-up since=0.8
    Leader {leader:int} for partition {ANY_TP} being reassigned, is already in the new list of replicas {replicas:ids}
    and is alive
C10f reassignment-caught-up since=0.8 strategy=reassign
    Leader {leader:int} for partition {ANY_TP} being reassigned,
    (?P<reason>is (?:not|already) in the new list of replicas {replicas:ids}(?:\. Re-electing leader| but is dead))
# Written at the beginning, with all replicas, and at the end, with the target; in 2.4 with the target only.
C10g assigned since=0.8 until=2.3
    Updated assigned replicas for partition {ANY_TP} being reassigned to {replicas:ids}
C10g-2.4 reassignment-started since=2.4 until=2.4
    Updated assigned replicas for partition {TP} being reassigned to {replicas:ids}
    \((?!addingReplicas: , removingReplicas: \))addingReplicas: {adding:ids}, removingReplicas: {removing:ids}\)
C10k assigned since=2.4 until=2.4
    Updated assigned replicas for partition {TP} being reassigned to {replicas:ids}
    \(addingReplicas: (?P<adding>), removingReplicas: (?P<removing>)\)
C10h assigned since=2.5
    Successfully updated assignment of partition {TP} to
    ReplicaAssignment\(replicas={replicas:ids}, addingReplicas={adding:ids}, removingReplicas={removing:ids}\)
C10i partition-failed since=0.8 strategy=reassign
    Error completing reassignment of partition {ANY_TP}(?: because {reason:rest})?
C10j partition-failed since=2.5 strategy=reassign
    Failed completing reassignment of partition {TP} because {reason:rest}
"""
)
