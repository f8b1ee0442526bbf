"""Lines of a broker in state-change.log and server.log about requests and its own actions, by version."""

from typing import Final

from .cluster import Log, Partition
from .journal import Journal
from .states import MASKS_INFO, State, Version, ids, in_metadata, in_request

_STATE: Final = " (state.change.logger)"
_PARTITION: Final = " (kafka.cluster.Partition)"


class BrokerLines:
    """Writer of one broker's lines."""

    def __init__(self, broker: int, version: Version, *, trace: bool, state: Journal, server: Journal) -> None:
        self.version = version
        self.trace = trace
        self.info = version >= MASKS_INFO
        self.state = state
        self.server = server
        self._prefix = f"[Broker id={broker}] "
        self._broker = broker
        self._log_name = "UnifiedLog" if version >= (3, 0) else "Log"

    # -- requests ------------------------------------------------------------------------------------------------------

    def received(self, time_ms: float, states: list[State], controller: int, epoch: int, correlation: int) -> None:
        """Writes the begin of a LeaderAndIsr request."""
        add = self.state.lines.append
        if self.info:
            text = f"Handling LeaderAndIsr request correlationId {correlation} from controller {controller}"
            add((time_ms, f"INFO {self._prefix}{text} for {len(states)} partitions{_STATE}"))
        if self.trace:
            head = f"TRACE {self._prefix}Received LeaderAndIsr request "
            tail = f" correlation id {correlation} from controller {controller} epoch {epoch}"
            for state in states:
                name = f" for partition {state.partition.name}" if self.version < (2, 4) else ""
                add((time_ms, f"{head}{in_request(state, self.version)}{tail}{name}{_STATE}"))

    def applied(self, time_ms: float, took_ms: float, count: int, controller: int, correlation: int) -> None:
        """Writes the end of a LeaderAndIsr request."""
        if self.version >= (2, 7):
            text = (
                f"Finished LeaderAndIsr request in {int(took_ms)}ms correlationId {correlation} "
                f"from controller {controller} for {count} partitions"
            )
            self.state.lines.append((time_ms, f"INFO {self._prefix}{text}{_STATE}"))

    def transition(
        self, time_ms: float, p: Partition, role: str, controller: int, epoch: int, correlation: int, *, done: bool
    ) -> None:
        if self.trace:
            verb, step = ("Completed", "for") if done else ("Handling", "starting")
            text = (
                f"{verb} LeaderAndIsr request correlationId {correlation} from controller {controller} epoch {epoch} "
                f"{step} the become-{role} transition for partition {p.name}"
            )
            self.state.lines.append((time_ms, f"TRACE {self._prefix}{text}{_STATE}"))

    def ignored(self, time_ms: float, state: State, known: int, controller: int, epoch: int, correlation: int) -> None:
        """Writes that a state was ignored because its leader epoch is not higher."""
        text = (
            f"Ignoring LeaderAndIsr request from controller {controller} with correlation id {correlation} "
            f"epoch {epoch} for partition {state.partition.name} since its associated leader epoch "
            f"{state.leader_epoch} "
        )
        if not self.info:
            line = f"WARN {self._prefix}{text}is not higher than the current leader epoch {known}{_STATE}"
        elif state.leader_epoch == known:
            line = f"INFO {self._prefix}{text}matches the current leader epoch{_STATE}"
        else:
            line = f"WARN {self._prefix}{text}is smaller than the current leader epoch {known}{_STATE}"
        self.state.lines.append((time_ms, line))

    def no_leader_to_follow(self, time_ms: float, state: State, controller: int, epoch: int, correlation: int) -> None:
        text = (
            f"Received LeaderAndIsrRequest with correlation id {correlation} from controller {controller} "
            f"epoch {epoch} for partition {state.partition.name} (last update controller epoch "
            f"{state.controller_epoch}) but cannot become follower since the new leader {state.leader} is unavailable."
        )
        self.state.lines.append((time_ms, f"ERROR {self._prefix}{text}{_STATE}"))

    def metadata(self, time_ms: float, states: list[State], controller: int, epoch: int, correlation: int) -> None:
        """Writes that leaders were cached; states with leader -2 are removed from the cache."""
        add = self.state.lines.append
        tail = (
            f" in response to UpdateMetadata request sent by controller {controller} epoch {epoch} with correlation id "
            f"{correlation}{_STATE}"
        )
        if self.trace:
            version = self.version
            for state in states:
                if state.leader == -2:
                    add(
                        (
                            time_ms,
                            f"TRACE {self._prefix}Deleted partition {state.partition.name} from metadata cache{tail}",
                        )
                    )
                    continue
                text = f"Cached leader info {in_metadata(state, version)} for partition {state.partition.name}"
                add((time_ms, f"TRACE {self._prefix}{text}{tail}"))
        if self.info:
            removed = sum(state.leader == -2 for state in states)
            text = f"Add {len(states) - removed} partitions and deleted {removed} partitions from metadata cache"
            add((time_ms, f"INFO {self._prefix}{text}{tail}"))

    def stopping(
        self, time_ms: float, partitions: list[Partition], controller: int, correlation: int, delete: bool
    ) -> None:
        add = self.state.lines.append
        if self.info:
            text = f"Handling StopReplica request correlationId {correlation} from controller {controller}"
            add((time_ms, f"INFO {self._prefix}{text} for {len(partitions)} partitions{_STATE}"))
        if self.trace:
            head = f"TRACE {self._prefix}Handling stop replica (delete={'true' if delete else 'false'}) for partition "
            for p in partitions:
                add((time_ms, f"{head}{p.name}{_STATE}"))

    # -- roles ---------------------------------------------------------------------------------------------------------

    def leads(self, time_ms: float, state: State, log: Log, before: tuple[int, int | None]) -> None:
        """Writes that the broker became leader; `before` is the previous epoch and its leader."""
        p, known, leader = state.partition, *before
        if not self.info:
            text = f"{p.name} starts at Leader Epoch {state.leader_epoch} from offset {log.end}."
            line = f"INFO [Partition {p.name} broker={self._broker}] {text} Previous Leader Epoch was: {known}"
            self.server.lines.append((time_ms, line + _PARTITION))
            return
        if self.version < (3, 0):
            text = (
                f"Leader {p.name} starts at leader epoch {state.leader_epoch} from offset {log.end} with "
                f"high watermark {log.high_watermark} ISR [{ids(state.isr)}] addingReplicas [{ids(state.adding)}] "
                f"removingReplicas [{ids(state.removing)}]. Previous leader epoch was {known}."
            )
        else:
            text = (
                f"Leader {p.name} with topic id Some({p.topic.id}) starts at leader epoch {state.leader_epoch} from "
                f"offset {log.end} with partition epoch {state.partition_epoch}, high watermark {log.high_watermark}, "
                f"ISR [{ids(state.isr)}], adding replicas [{ids(state.adding)}] and removing replicas "
                f"[{ids(state.removing)}] . {_before(leader, known)}"
            )
        self.state.lines.append((time_ms, f"INFO {self._prefix}{text}{_STATE}"))

    def follows(self, time_ms: float, state: State, log: Log, before: tuple[int, int | None]) -> None:
        """Writes that the broker became follower; its log is not truncated yet."""
        if not self.info:
            return
        p, known, leader = state.partition, *before
        head = f"Follower {p.name}"
        tail = f"starts at leader epoch {state.leader_epoch} from offset {log.end} with "
        if self.version < (3, 0):
            text = f"{head} {tail}high watermark {log.high_watermark}. Previous leader epoch was {known}."
        else:
            text = (
                f"{head} with topic id Some({p.topic.id}) {tail}partition epoch {state.partition_epoch} and high "
                f"watermark {log.high_watermark}. Current leader is {state.leader}. {_before(leader, known)}"
            )
        self.state.lines.append((time_ms, f"INFO {self._prefix}{text}{_STATE}"))

    # -- server.log ----------------------------------------------------------------------------------------------------

    def truncates(self, time_ms: float, p: Partition, end: int) -> None:
        prefix = f"[{self._log_name} partition={p.name}, dir=/data/kafka]"
        logger = f" (kafka.log.{self._log_name})"
        self.server.lines.append((time_ms, f"INFO {prefix} Truncating to offset {end}{logger}"))

    def isr(self, time_ms: float, p: Partition, before: tuple[int, ...], log: Log) -> None:
        """Writes that the broker changed the ISR from `before` to the stored one."""
        prefix = f"INFO [Partition {p.name} broker={self._broker}] "
        add = self.server.lines.append
        lost = [broker for broker in before if broker not in p.isr]
        if lost:
            out = " ".join(f"(brokerId: {broker}, endOffset: {p.logs[broker].end})" for broker in lost)
            text = (
                f"Shrinking ISR from {ids(before)} to {ids(p.isr)}. Leader: (highWatermark: {log.high_watermark}, "
                f"endOffset: {log.end}). Out of sync replicas: {out}."
            )
            add((time_ms, f"{prefix}{text}{_PARTITION}"))
        elif self.version <= (2, 7):
            add((time_ms, f"{prefix}Expanding ISR from {ids(before)} to {ids(p.isr)}{_PARTITION}"))
        if self.version < (2, 7):
            done = f"ISR updated to [{ids(p.isr)}] and zkVersion updated to [{p.partition_epoch}]"
        else:
            done = f"ISR updated to {ids(p.isr)}  and version updated to {p.partition_epoch}".replace("  ", " ")
        add((time_ms + 2, f"{prefix}{done}{_PARTITION}"))

    def noise(self, time_ms: float, text: str) -> None:
        self.server.lines.append((time_ms, text))


def _before(leader: int | None, epoch: int) -> str:
    id = "None" if leader is None else f"Some({leader})"
    return f"Previous leader {id} and previous leader epoch was {epoch}."
