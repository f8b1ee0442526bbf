"""Lines of Kafka's ZooKeeper controller in state-change.log and controller.log, by version."""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from .cluster import Partition, Topic
from .journal import Journal
from .states import MASKS_INFO, RECOVERY, State, Version, ids, in_metadata, in_request, in_zookeeper, spaced

NEW: Final = "NewPartition"
ONLINE: Final = "OnlinePartition"
OFFLINE: Final = "OfflinePartition"
NONE: Final = "NonExistentPartition"
_STATE: Final = " (state.change.logger)"
_LOG: Final = " (kafka.controller.KafkaController)"
_DELETION: Final = " (kafka.controller.TopicDeletionManager)"
_STRATEGIES: Final = {
    "offline": "OfflinePartitionLeaderElectionStrategy",
    "controlled-shutdown": "ControlledShutdownPartitionLeaderElectionStrategy$",
}


class Lines(Protocol):
    """Writer of a controller's lines in some format; `epoch` is the controller epoch."""

    epoch: int

    def became(self, time_ms: float, p: Partition) -> None: ...
    def online(self, time_ms: float, before: str, state: State) -> None: ...
    def moved(self, time_ms: float, p: Partition, before: str, after: str) -> None: ...
    def failed(self, time_ms: float, p: Partition, before: str, strategy: str) -> None: ...
    def replica(self, time_ms: float, p: Partition, broker: int, before: str, after: str) -> None: ...
    def cut(self, time_ms: float, state: State, broker: int) -> None: ...
    def sending(self, time_ms: float, broker: int, states: Sequence[State]) -> None: ...
    def metadata(self, time_ms: float, brokers: Sequence[int], states: Sequence[State]) -> None: ...
    def stopping(self, time_ms: float, broker: int, partitions: Sequence[Partition], delete: bool) -> None: ...
    def answered(self, time_ms: float, request: str, broker: int, correlation: int) -> None: ...
    def isr(self, time_ms: float, state: State) -> None: ...
    def elected(self, time_ms: float, live: Sequence[int]) -> None: ...
    def ready(self, time_ms: float) -> None: ...
    def started(self, time_ms: float) -> None: ...
    def resigned(self, time_ms: float) -> None: ...
    def brokers(self, time_ms: float, added: Sequence[int], removed: Sequence[int], live: Sequence[int]) -> None: ...
    def broker_stopping(self, time_ms: float, broker: int) -> None: ...
    def broker_stopped(self, time_ms: float, broker: int) -> None: ...
    def election(self, time_ms: float, kind: str, partitions: Sequence[Partition], trigger: str) -> None: ...
    def imbalance(self, time_ms: float, broker: int, ratio: float) -> None: ...
    def topic_created(self, time_ms: float, topic: Topic) -> None: ...
    def deletion(self, time_ms: float, topic: Topic, step: str, dead: Sequence[tuple[Partition, int]] = ()) -> None: ...
    def reassignment(self, time_ms: float, p: Partition, step: str, target: tuple[int, ...]) -> None: ...


class KafkaLines:
    """Writer of one broker's lines while it is the controller."""

    def __init__(self, broker: int, version: Version, *, trace: bool, state: Journal, log: Journal) -> None:
        self.epoch = 0
        self._broker = broker
        self._version = version
        self._trace = trace
        self._info = version >= MASKS_INFO
        self._level = "INFO" if self._info else "TRACE"
        self._tells = trace or self._info
        self._state = state.lines
        self._log = log.lines

    @property
    def _prefix(self) -> str:
        return f"[Controller id={self._broker} epoch={self.epoch}] "

    # -- partitions and replicas ---------------------------------------------------------------------------------------

    def became(self, time_ms: float, p: Partition) -> None:
        if self._tells:
            text = f"Changed partition {p.name} state from {NONE} to {NEW} with assigned replicas {ids(p.replicas)}"
            self._state.append((time_ms, f"{self._level} {self._prefix}{text}{_STATE}"))

    def online(self, time_ms: float, before: str, state: State) -> None:
        if self._tells:
            text = f"Changed partition {state.partition.name} from {before} to {ONLINE} with state "
            self._state.append(
                (time_ms, f"{self._level} {self._prefix}{text}{in_zookeeper(state, self._version)}{_STATE}")
            )

    def moved(self, time_ms: float, p: Partition, before: str, after: str) -> None:
        if self._trace:
            text = f"Changed partition {p.name} state from {before} to {after}"
            self._state.append((time_ms, f"TRACE {self._prefix}{text}{_STATE}"))

    def failed(self, time_ms: float, p: Partition, before: str, strategy: str) -> None:
        name = _STRATEGIES[strategy]
        if strategy == "offline" and self._version >= (2, 4):
            name += "(false)"
        text = (
            f"Controller {self._broker} epoch {self.epoch} failed to change state for partition {p.name} from {before} "
        )
        reason = f"Failed to elect leader for partition {p.name} under strategy {name}"
        self._state.append(
            (
                time_ms,
                f"ERROR {self._prefix}{text}to {ONLINE}{_STATE}\nkafka.common.StateChangeFailedException: {reason}\n"
                "\tat kafka.controller.ZkPartitionStateMachine.doElectLeaderForPartitions(PartitionStateMachine.scala)",
            )
        )

    def replica(self, time_ms: float, p: Partition, broker: int, before: str, after: str) -> None:
        if self._trace:
            text = f"Changed state of replica {broker} for partition {p.name} from {before} to {after}"
            self._state.append((time_ms, f"TRACE {self._prefix}{text}{_STATE}"))

    def cut(self, time_ms: float, state: State, broker: int) -> None:
        if not self._info:
            return
        recovery = f"LeaderRecoveryState:{state.recovery}," if self._version >= RECOVERY else ""
        text = (
            f"Partition {state.partition.name} state changed to (Leader:{state.leader},ISR:{ids(state.isr)},{recovery}"
            f"LeaderEpoch:{state.leader_epoch},ZkVersion:{state.partition_epoch},ControllerEpoch:{self.epoch}) after "
            f"removing replica {broker} from the ISR as part of transition to OfflineReplica"
        )
        self._state.append((time_ms, f"INFO {self._prefix}{text}{_STATE}"))

    # -- requests ------------------------------------------------------------------------------------------------------

    def sending(self, time_ms: float, broker: int, states: Sequence[State]) -> None:
        add, prefix = self._state.append, self._prefix
        if self._trace:
            for state in states:
                role = "leader" if state.leader == broker else "follower"
                body = in_request(state, self._version)
                text = f"Sending become-{role} LeaderAndIsr request {body} to broker {broker} for partition "
                add((time_ms, f"TRACE {prefix}{text}{state.partition.name}{_STATE}"))
        if self._info:
            leads = sum(state.leader == broker for state in states)
            text = f"Sending LeaderAndIsr request to broker {broker} with {leads} become-leader "
            add((time_ms, f"INFO {prefix}{text}and {len(states) - leads} become-follower partitions{_STATE}"))

    def metadata(self, time_ms: float, brokers: Sequence[int], states: Sequence[State]) -> None:
        listed = f"brokers {'HashSet' if self._info else 'Set'}({', '.join(map(str, brokers))})"
        if self._info:
            text = f"Sending UpdateMetadata request to {listed} for {len(states)} partitions"
            self._state.append((time_ms, f"INFO {self._prefix}{text}{_STATE}"))
        elif self._trace:
            for state in states:
                text = f"Sending UpdateMetadata request {in_metadata(state, self._version)} to {listed} for partition "
                self._state.append((time_ms, f"TRACE {self._prefix}{text}{state.partition.name}{_STATE}"))

    def stopping(self, time_ms: float, broker: int, partitions: Sequence[Partition], delete: bool) -> None:
        deletes = "true" if delete else "false"
        if not self._info:
            listed = ",".join(f"[Topic={p.topic.name},Partition={p.number},Replica={broker}]" for p in partitions)
            text = f"The stop replica request (delete = {deletes}) sent to broker {broker} is {listed}"
            prefix = f"[Channel manager on controller {self._broker}]: "
            self._log.append((time_ms, f"DEBUG {prefix}{text} (kafka.controller.ControllerBrokerRequestBatch)"))
            return
        if self._trace:
            for p in partitions:
                epoch = -2 if delete else p.leader_epoch
                text = (
                    f"Sending StopReplica request StopReplicaPartitionState(partitionIndex={p.number}, "
                    f"leaderEpoch={epoch}, deletePartition={deletes}) to broker {broker} for partition {p.name}"
                )
                self._state.append((time_ms, f"TRACE {self._prefix}{text}{_STATE}"))
        text = f"Sending StopReplica request for {len(partitions)} replicas to broker {broker}"
        self._state.append((time_ms, f"INFO {self._prefix}{text}{_STATE}"))

    def answered(self, time_ms: float, request: str, broker: int, correlation: int) -> None:
        if self._trace:
            body = "{error_code=0,partitions=[]}" if self._version < (2, 4) else "ResponseData(errorCode=0)"
            text = f"Received response {body} for request {request} with correlation id {correlation} sent to broker "
            self._state.append(
                (time_ms, f"TRACE {self._prefix}{text}host-{broker}:9092 (id: {broker} rack: null){_STATE}")
            )

    # -- controller.log ------------------------------------------------------------------------------------------------

    def isr(self, time_ms: float, state: State) -> None:
        """Writes that a leader's ISR was stored; from 2.7 on, the controller stores it."""
        if self._version >= (2, 7):
            text = f"ISR for partition {state.partition.name} updated to {in_zookeeper(state, self._version)}."
            self._append(time_ms, "DEBUG", text)

    def elected(self, time_ms: float, live: Sequence[int]) -> None:
        text = f"{self._broker} successfully elected as the controller. Epoch incremented to {self.epoch} "
        self._append(time_ms, "INFO", f"{text}and epoch zk version is now {self.epoch}")
        self._append(time_ms + 1, "INFO", "Registering handlers")
        self._append(time_ms + 8, "INFO", f"Currently active brokers in the cluster: Set({', '.join(map(str, live))})")
        self._append(time_ms + 8, "INFO", "Currently shutting brokers in the cluster: Set()")

    def ready(self, time_ms: float) -> None:
        self._append(time_ms, "INFO", f"Ready to serve as the new controller with epoch {self.epoch}")

    def started(self, time_ms: float) -> None:
        self._append(time_ms, "INFO", "Starting the controller scheduler")

    def resigned(self, time_ms: float) -> None:
        self._append(time_ms, "DEBUG", "Resigned")

    def brokers(self, time_ms: float, added: Sequence[int], removed: Sequence[int], live: Sequence[int]) -> None:
        text = f"Newly added brokers: {_list(added)}, deleted brokers: {_list(removed)}, bounced brokers: , "
        self._append(time_ms, "INFO", f"{text}all live brokers: {_list(live)}")
        if added:
            self._append(time_ms + 0.5, "INFO", f"New broker startup callback for {_list(added)}")
        if removed:
            self._append(time_ms + 0.5, "INFO", f"Broker failure callback for {_list(removed)}")

    def broker_stopping(self, time_ms: float, broker: int) -> None:
        self._append(time_ms, "INFO", f"Shutting down broker {broker}")

    def broker_stopped(self, time_ms: float, broker: int) -> None:
        self._append(time_ms, "INFO", f"Removed ArrayBuffer({broker}) from list of shutting down brokers.")

    def election(self, time_ms: float, kind: str, partitions: Sequence[Partition], trigger: str) -> None:
        listed = ",".join(p.name for p in partitions)
        if self._version < (2, 4):
            self._append(time_ms, "INFO", f"Starting preferred replica leader election for partitions {listed}")
        else:
            text = f"Starting replica leader election ({kind}) for partitions {listed} triggered by {trigger}"
            self._append(time_ms, "INFO", text)

    def imbalance(self, time_ms: float, broker: int, ratio: float) -> None:
        self._append(time_ms, "TRACE", f"Leader imbalance ratio for broker {broker} is {ratio}")

    def topic_created(self, time_ms: float, topic: Topic) -> None:
        assigned = ", ".join(f"{p.name} -> Vector({spaced(p.replicas)})" for p in topic.partitions)
        text = f"New topics: [Set({topic.name})], deleted topics: [Set()], new partition replica assignment "
        self._append(time_ms, "INFO", f"{text}[Map({assigned})]")
        names = ",".join(p.name for p in topic.partitions)
        self._append(time_ms + 0.5, "INFO", f"New partition creation callback for {names}")

    def deletion(self, time_ms: float, topic: Topic, step: str, dead: Sequence[tuple[Partition, int]] = ()) -> None:
        prefix = f"[Topic Deletion Manager {self._broker}] "
        if step == "asked":
            self._append(time_ms, "DEBUG", f"Starting topic deletion for topics {topic.name}")
            self._log.append((time_ms + 0.3, f"INFO {prefix}Handling deletion for topics {topic.name}{_DELETION}"))
        elif step == "started":
            self._log.append((time_ms, f"INFO {prefix}Deletion of topic {topic.name} (re)started{_DELETION}"))
        elif step == "dead":
            listed = ",".join(f"[Topic={topic.name},Partition={p.number},Replica={broker}]" for p, broker in dead)
            self._log.append(
                (time_ms, f"DEBUG {prefix}Dead Replicas ({listed}) found for topic {topic.name}{_DELETION}")
            )
        elif step == "halted":
            reason = " due to dead replicas" if self._version >= (2, 3) else ""
            self._log.append((time_ms, f"INFO {prefix}Halted deletion of topics {topic.name}{reason}{_DELETION}"))
        else:
            self._log.append(
                (time_ms, f"INFO {prefix}Deletion of topic {topic.name} successfully completed{_DELETION}")
            )

    def reassignment(self, time_ms: float, p: Partition, step: str, target: tuple[int, ...]) -> None:
        listed = f"List({spaced(target)})"
        if step == "started":
            self._append(time_ms, "INFO", f"Handling reassignment of partition {p.name} to new replicas {listed}")
        elif step == "epoch":
            self._append(time_ms, "INFO", f"Updated leader epoch for partition {p.name} to {p.leader_epoch}")
        elif step == "waits":
            text = f"0/{len(target)} replicas have caught up with the leader for partition {p.name} being reassigned."
            self._append(time_ms, "INFO", f"{text} Replica(s) {ids(target)} still need to catch up")
        else:
            text = f"Target replicas {listed} have all caught up with the leader for reassigning partition {p.name}"
            self._append(time_ms, "INFO", text)

    def _append(self, time_ms: float, level: str, text: str) -> None:
        self._log.append((time_ms, f"{level} [Controller id={self._broker}] {text}{_LOG}"))


def _list(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))
