"""What a broker of each version writes about what it is told and what it does, to state-change.log and server.log."""

from typing import Final

from .cluster import Log, Partition
from .journal import Journal
from .states import MASKS_INFO, State, Version, ids, in_metadata, in_request

_STATE: Final = " (state.change.logger)"
_PARTITION: Final = " (kafka.cluster.Partition)"


class BrokerLines:
    """The lines of one broker."""

    def __init__(self, broker: int, version: Version, *, trace: bool, state: Journal, server: Journal) -> None:
        self.version = version
        self.trace = trace
        self.info = version >= MASKS_INFO
        self.state = state
        self.server = server
        self._who = f"[Broker id={broker}] "
        self._broker = broker
        self._log_name = "UnifiedLog" if version >= (3, 0) else "Log"

    # -- requests ------------------------------------------------------------------------------------------------------

    def received(self, at: float, states: list[State], controller: int, epoch: int, correlation: int) -> None:
        """It begins with a LeaderAndIsr."""
        add = self.state.lines.append
        if self.info:
            text = f"Handling LeaderAndIsr request correlationId {correlation} from controller {controller}"
            add((at, f"INFO {self._who}{text} for {len(states)} partitions{_STATE}"))
        if self.trace:
            head = f"TRACE {self._who}Received LeaderAndIsr request "
            tail = f" correlation id {correlation} from controller {controller} epoch {epoch}"
            for state in states:
                name = f" for partition {state.partition.name}" if self.version < (2, 4) else ""
                add((at, f"{head}{in_request(state, self.version)}{tail}{name}{_STATE}"))

    def applied(self, at: float, took_ms: float, count: int, controller: int, correlation: int) -> None:
        """And has ended."""
        if self.version >= (2, 7):
            text = (
                f"Finished LeaderAndIsr request in {int(took_ms)}ms correlationId {correlation} "
                f"from controller {controller} for {count} partitions"
            )
            self.state.lines.append((at, f"INFO {self._who}{text}{_STATE}"))

    def transition(
        self, at: float, p: Partition, role: str, controller: int, epoch: int, correlation: int, *, done: bool
    ) -> None:
        if self.trace:
            verb, what = ("Completed", "for") if done else ("Handling", "starting")
            text = (
                f"{verb} LeaderAndIsr request correlationId {correlation} from controller {controller} epoch {epoch} "
                f"{what} the become-{role} transition for partition {p.name}"
            )
            self.state.lines.append((at, f"TRACE {self._who}{text}{_STATE}"))

    def ignored(self, at: float, state: State, known: int, controller: int, epoch: int, correlation: int) -> None:
        """A state that is no news."""
        text = (
            f"Ignoring LeaderAndIsr request from controller {controller} with correlation id {correlation} "
            f"epoch {epoch} for partition {state.partition.name} since its associated leader epoch "
            f"{state.leader_epoch} "
        )
        if not self.info:
            line = f"WARN {self._who}{text}is not higher than the current leader epoch {known}{_STATE}"
        elif state.leader_epoch == known:
            line = f"INFO {self._who}{text}matches the current leader epoch{_STATE}"
        else:
            line = f"WARN {self._who}{text}is smaller than the current leader epoch {known}{_STATE}"
        self.state.lines.append((at, line))

    def nobody_to_follow(self, at: float, state: State, controller: int, epoch: int, correlation: int) -> None:
        text = (
            f"Received LeaderAndIsrRequest with correlation id {correlation} from controller {controller} "
            f"epoch {epoch} for partition {state.partition.name} (last update controller epoch "
            f"{state.controller_epoch}) but cannot become follower since the new leader {state.leader} is unavailable."
        )
        self.state.lines.append((at, f"ERROR {self._who}{text}{_STATE}"))

    def metadata(self, at: float, states: list[State], controller: int, epoch: int, correlation: int) -> None:
        """It caches who leads; states of leader -2 are taken out of its cache."""
        add = self.state.lines.append
        tail = (
            f" in response to UpdateMetadata request sent by controller {controller} epoch {epoch} with correlation id "
            f"{correlation}{_STATE}"
        )
        if self.trace:
            version = self.version
            for state in states:
                if state.leader == -2:
                    add((at, f"TRACE {self._who}Deleted partition {state.partition.name} from metadata cache{tail}"))
                    continue
                text = f"Cached leader info {in_metadata(state, version)} for partition {state.partition.name}"
                add((at, f"TRACE {self._who}{text}{tail}"))
        if self.info:
            removed = sum(state.leader == -2 for state in states)
            text = f"Add {len(states) - removed} partitions and deleted {removed} partitions from metadata cache"
            add((at, f"INFO {self._who}{text}{tail}"))

    def stopping(self, at: float, partitions: list[Partition], controller: int, correlation: int, delete: bool) -> None:
        add = self.state.lines.append
        if self.info:
            text = f"Handling StopReplica request correlationId {correlation} from controller {controller}"
            add((at, f"INFO {self._who}{text} for {len(partitions)} partitions{_STATE}"))
        if self.trace:
            head = f"TRACE {self._who}Handling stop replica (delete={'true' if delete else 'false'}) for partition "
            for p in partitions:
                add((at, f"{head}{p.name}{_STATE}"))

    # -- roles ---------------------------------------------------------------------------------------------------------

    def leads(self, at: float, state: State, log: Log, before: tuple[int, int | None]) -> None:
        """It took the lead; `before` is the epoch it knew before, and who led in it."""
        p, known, leader = state.partition, *before
        if not self.info:
            text = f"{p.name} starts at Leader Epoch {state.leader_epoch} from offset {log.end}."
            line = f"INFO [Partition {p.name} broker={self._broker}] {text} Previous Leader Epoch was: {known}"
            self.server.lines.append((at, line + _PARTITION))
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
        self.state.lines.append((at, f"INFO {self._who}{text}{_STATE}"))

    def follows(self, at: float, state: State, log: Log, before: tuple[int, int | None]) -> None:
        """It follows; nothing of its log has been cut yet."""
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
        self.state.lines.append((at, f"INFO {self._who}{text}{_STATE}"))

    # -- server.log ----------------------------------------------------------------------------------------------------

    def truncates(self, at: float, p: Partition, end: int) -> None:
        who = f"[{self._log_name} partition={p.name}, dir=/data/kafka]"
        logger = f" (kafka.log.{self._log_name})"
        self.server.lines.append((at, f"INFO {who} Truncating to offset {end}{logger}"))

    def isr(self, at: float, p: Partition, before: tuple[int, ...], log: Log) -> None:
        """It changed the ISR from `before` to what is stored now."""
        who = f"INFO [Partition {p.name} broker={self._broker}] "
        add = self.server.lines.append
        lost = [broker for broker in before if broker not in p.isr]
        if lost:
            out = " ".join(f"(brokerId: {broker}, endOffset: {p.logs[broker].end})" for broker in lost)
            text = (
                f"Shrinking ISR from {ids(before)} to {ids(p.isr)}. Leader: (highWatermark: {log.high_watermark}, "
                f"endOffset: {log.end}). Out of sync replicas: {out}."
            )
            add((at, f"{who}{text}{_PARTITION}"))
        elif self.version <= (2, 7):
            add((at, f"{who}Expanding ISR from {ids(before)} to {ids(p.isr)}{_PARTITION}"))
        if self.version < (2, 7):
            done = f"ISR updated to [{ids(p.isr)}] and zkVersion updated to [{p.partition_epoch}]"
        else:
            done = f"ISR updated to {ids(p.isr)}  and version updated to {p.partition_epoch}".replace("  ", " ")
        add((at + 2, f"{who}{done}{_PARTITION}"))

    def noise(self, at: float, text: str) -> None:
        self.server.lines.append((at, text))


def _before(leader: int | None, epoch: int) -> str:
    said = "None" if leader is None else f"Some({leader})"
    return f"Previous leader {said} and previous leader epoch was {epoch}."
