"""Log lines of controllers and brokers, for tests of the jobs that read them."""

from collections.abc import Sequence
from typing import Final

from .tables import controller_line, line

OFFLINE: Final = "OfflinePartition"
ONLINE: Final = "OnlinePartition"
NEW: Final = "NewPartition"
ABSENT: Final = "NonExistentPartition"
_PARTITION: Final = "kafka.cluster.Partition"
Ids = Sequence[int]


def ids(of: Ids, between: str = ",") -> str:
    return between.join(map(str, of))


def state(leader: int, epoch: int, isr: Ids, version: int, replicas: Ids = (1, 2, 3)) -> str:
    """Returns a partition state in the format of requests until 2.3."""
    return (
        f"PartitionState(controllerEpoch=5, leader={leader}, leaderEpoch={epoch}, isr={ids(isr)}, zkVersion={version}, "
        f"replicas={ids(replicas)}, isNew=false)"
    )


# -- a controller, in state-change.log ---------------------------------------------------------------------------------


def _controller(seconds: float, message: str, by: int, under: int, level: str = "INFO") -> str:
    return line(seconds, f"[Controller id={by} epoch={under}] {message}", level=level)


def new(seconds: float, tp: str, replicas: Ids = (1, 2, 3), *, by: int = 1, under: int = 5) -> str:
    message = f"Changed partition {tp} state from {ABSENT} to {NEW} with assigned replicas {ids(replicas)}"
    return _controller(seconds, message, by, under)


def online(
    seconds: float,
    tp: str,
    leader: int,
    epoch: int,
    isr: Ids,
    version: int,
    *,
    before: str = ONLINE,
    by: int = 1,
    under: int = 5,
) -> str:
    held = f"LeaderAndIsr(leader={leader}, leaderEpoch={epoch}, isr=List({ids(isr, ', ')}), zkVersion={version})"
    return _controller(seconds, f"Changed partition {tp} from {before} to {ONLINE} with state {held}", by, under)


def online_unnumbered(
    seconds: float, tp: str, leader: int, *, before: str = ONLINE, by: int = 1, under: int = 5
) -> str:
    """Returns the line in the format of 1.0."""
    return _controller(seconds, f"Changed partition {tp} from {before} to {ONLINE} with leader {leader}", by, under)


def moved(seconds: float, tp: str, before: str, after: str, *, by: int = 1, under: int = 5) -> str:
    return _controller(seconds, f"Changed partition {tp} state from {before} to {after}", by, under, "TRACE")


def cut(
    seconds: float, tp: str, leader: int, epoch: int, isr: Ids, removed: int, version: int | None = None, *, by: int = 1
) -> str:
    numbered = "" if version is None else f"ZkVersion:{version},"
    message = (
        f"Partition {tp} state changed to (Leader:{leader},ISR:{ids(isr)},LeaderEpoch:{epoch},{numbered}"
        f"ControllerEpoch:5) after removing replica {removed} from the ISR as part of transition to OfflineReplica"
    )
    return _controller(seconds, message, by, 5)


def sent(seconds: float, tp: str, held: str, to: int, *, as_leader: bool = True, by: int = 1, under: int = 5) -> str:
    role = "leader" if as_leader else "follower"
    message = f"Sending become-{role} LeaderAndIsr request {held} to broker {to} for partition {tp}"
    return _controller(seconds, message, by, under, "TRACE")


def answered(seconds: float, of: int, correlation: int, *, by: int = 1, under: int = 5) -> str:
    message = (
        f"Received response {{errorCode=0}} for request LEADER_AND_ISR with correlation id {correlation} "
        f"sent to broker host-{of}:9092 (id: {of} rack: null)"
    )
    return _controller(seconds, message, by, under, "TRACE")


# -- a controller, in controller.log -----------------------------------------------------------------------------------


def written(seconds: float, tp: str, leader: int, epoch: int, isr: Ids, version: int, *, by: int = 1) -> str:
    held = f"LeaderAndIsr(leader={leader}, leaderEpoch={epoch}, isr=List({ids(isr, ', ')}), zkVersion={version})"
    return controller_line(seconds, by, f"ISR for partition {tp} updated to {held}.", level="DEBUG")


def changed(seconds: float, live: Ids, *, added: Ids = (), deleted: Ids = (), bounced: Ids = (), by: int = 1) -> str:
    return controller_line(
        seconds,
        by,
        f"Newly added brokers: {ids(added)}, deleted brokers: {ids(deleted)}, bounced brokers: {ids(bounced)}, "
        f"all live brokers: {ids(live)}",
    )


def elected(seconds: float, by: int, under: int) -> str:
    message = f"{by} successfully elected as the controller. Epoch incremented to {under} and epoch zk version is now 1"
    return controller_line(seconds, by, message)


def preferred_asked(seconds: float, tps: str, *, by: int = 1) -> str:
    message = f"Starting replica leader election (PREFERRED) for partitions {tps} triggered by AdminClientTriggered"
    return controller_line(seconds, by, message)


# -- a broker ----------------------------------------------------------------------------------------------------------


def received(seconds: float, broker: int, tp: str, held: str, correlation: int, *, of: int = 1, under: int = 5) -> str:
    message = (
        f"[Broker id={broker}] Received LeaderAndIsr request {held} correlation id {correlation} from controller {of} "
        f"epoch {under} for partition {tp}"
    )
    return line(seconds, message, level="TRACE")


def completed(seconds: float, broker: int, tp: str, correlation: int, *, as_leader: bool = True) -> str:
    role = "leader" if as_leader else "follower"
    message = (
        f"[Broker id={broker}] Completed LeaderAndIsr request correlationId {correlation} from controller 1 epoch 5 "
        f"for the become-{role} transition for partition {tp}"
    )
    return line(seconds, message, level="TRACE")


def handling(seconds: float, broker: int, correlation: int, count: int = 1) -> str:
    message = f"Handling LeaderAndIsr request correlationId {correlation} from controller 1 for {count} partitions"
    return line(seconds, f"[Broker id={broker}] {message}")


def leads(
    seconds: float, broker: int, tp: str, epoch: int, isr: Ids, *, end: int = 0, high: int = 0, before: int = -1
) -> str:
    message = (
        f"Leader {tp} starts at leader epoch {epoch} from offset {end} with high watermark {high} ISR [{ids(isr)}] "
        f"addingReplicas [] removingReplicas []. Previous leader epoch was {before}."
    )
    return line(seconds, f"[Broker id={broker}] {message}")


def leads_3(
    seconds: float, broker: int, tp: str, epoch: int, version: int, isr: Ids, *, removing: Ids = (), before: str = ""
) -> str:
    """Returns the line in the format of 3.x. `before` is for example "Some(1) and previous leader epoch was 3"."""
    message = (
        f"Leader {tp} with topic id Some(AbC-dEf_GhIjKlMnOpQrSt) starts at leader epoch {epoch} from offset 7 with "
        f"partition epoch {version}, high watermark 5, ISR [{ids(isr)}], adding replicas [] and removing replicas "
        f"[{ids(removing)}] . Previous leader {before or 'None and previous leader epoch was -1'}."
    )
    return line(seconds, f"[Broker id={broker}] {message}")


def follows(seconds: float, broker: int, tp: str, epoch: int, *, end: int = 0, high: int = 0, before: int = -1) -> str:
    message = (
        f"Follower {tp} starts at leader epoch {epoch} from offset {end} with high watermark {high}. "
        f"Previous leader epoch was {before}."
    )
    return line(seconds, f"[Broker id={broker}] {message}")


def shrinking(seconds: float, broker: int, tp: str, before: Ids, after: Ids) -> str:
    message = f"[Partition {tp} broker={broker}] Shrinking ISR from {ids(before)} to {ids(after)}"
    return line(seconds, message, logger=_PARTITION)


def isr_updated(seconds: float, broker: int, tp: str, isr: Ids, version: int) -> str:
    message = f"[Partition {tp} broker={broker}] ISR updated to {ids(isr)} and version updated to {version}"
    return line(seconds, message, logger=_PARTITION)
