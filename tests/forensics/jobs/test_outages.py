"""Outages of partitions: each scenario is a topic with one partition, and the job runs once over all of them."""

import datetime
from collections.abc import Callable, Iterable
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from kactl.forensics.event_types import Kind
from kactl.forensics.jobs import absences, leadership, outages

from .tables import as_timed, controller_line, events, line, moment, rows, table

PARTS: Final = ("detection_ms", "queue_ms", "waiting_ms", "election_ms", "send_ms", "apply_ms")
NOBODY_LIVES: Final = (
    "kafka.common.StateChangeFailedException: Failed to elect leader for partition {name}-0 under strategy "
    "OfflinePartitionLeaderElectionStrategy(false)"
)
# Time of the controllers' last line.
LOGS_END: Final = 500
Rows = Callable[[str], list[dict[str, Any]]]


class Story:
    """Rows and lines of one topic, in the terms of controllers and brokers."""

    def __init__(self, name: str, *, controller: int = 1, epoch: int = 5) -> None:
        self.name = name
        self.leaderships: list[dict[str, Any]] = []
        self.lines: list[str] = []
        self.of_controllers: list[str] = []
        self._prefix = f"[Controller id={controller} epoch={epoch}] "
        self._controller = {"controller": controller, "controller_epoch": epoch}

    def led(self, at: float, leader: int | None, epoch: int, how: str, *, line: bool = True, **more: Any) -> "Story":
        """Adds a row of leadership, and the controller's line of it if it has one."""
        before = self.leaderships[-1] if self.leaderships else {}
        planned = {"offline": False, "preferred": True, "reassign": True, "controlled-shutdown": True}.get(how)
        row = {"leader": leader, "leader_epoch": epoch, "begin": moment(at), "how": how, "planned": planned}
        row |= {"topic": self.name, "partition": 0, "life": 0, "begin_error_us": 0, "led_error_us": 0}
        row |= {"prev_leader": before.get("leader"), "prev_leader_epoch": before.get("leader_epoch")}
        times = {name: moment(more.pop(name)) for name in ("received_at", "led_at") if name in more}
        self.leaderships.append(self._controller | row | times | more)
        if line and more.get("from_state"):
            self.says(
                at,
                f"Changed partition {self.name}-0 from {more['from_state']} to OnlinePartition with state "
                f"LeaderAndIsr(leader={leader}, leaderEpoch={epoch}, isr=List({leader}), zkVersion={epoch})",
            )
        return self

    def says(self, at: float, message: str, level: str = "INFO") -> "Story":
        """Adds a controller's line to state-change.log."""
        self.lines.append(line(at, self._prefix + message, level=level))
        return self

    def offline(self, at: float, before: str = "Online", after: str = "Offline") -> "Story":
        state = f"state from {before}Partition to {after}Partition"
        return self.says(at, f"Changed partition {self.name}-0 {state}", "TRACE")

    def failed(self, at: float, before: str = "Offline", why: str = NOBODY_LIVES) -> "Story":
        tried = f"from {before}Partition to OnlinePartition"
        message = f"Controller 1 epoch 5 failed to change state for partition {self.name}-0 {tried}"
        trace = f"\n{why.format(name=self.name)}\n\tat kafka.controller.X" if why else ""
        return self.says(at, message + trace, "ERROR")

    def cut(self, at: float, leader: int, epoch: int, removed: int) -> "Story":
        body = f"(Leader:{leader},ISR:9,LeaderEpoch:{epoch},ControllerEpoch:5)"
        after = f"after removing replica {removed} from the ISR as part of transition to OfflineReplica"
        return self.says(at, f"Partition {self.name}-0 state changed to {body} {after}")

    def follows(self, at: float, broker: int, epoch: int, *, before: int | None = None) -> "Story":
        start = f"starts at leader epoch {epoch} from offset 10 with high watermark 10"
        known = epoch - 1 if before is None else before
        said = f"[Broker id={broker}] Follower {self.name}-0 {start}. Previous leader epoch was {known}."
        self.lines.append(line(at, said))
        return self

    def changes_isr(self, at: float, broker: int) -> "Story":
        said = f"[Partition {self.name}-0 broker={broker}] Expanding ISR from {broker} to {broker},9"
        self.lines.append(line(at, said, logger="kafka.cluster.Partition"))
        return self

    def directory_fails(self, at: float, broker: int) -> "Story":
        failed = f"stopped fetcher for partitions {self.name}-0,elsewhere-1 and stopped moving logs for partitions "
        said = f"Broker {broker} {failed} because they are in the failed log directory /data/1."
        self.lines.append(line(at, f"[ReplicaManager broker={broker}] {said}", level="WARN", logger="kafka.server.R"))
        return self

    def in_controller_log(self, at: float, message: str, controller: int = 1) -> "Story":
        self.of_controllers.append(controller_line(at, controller, message))
        return self


def _stories() -> Iterable[Story]:
    offline: dict[str, Any] = {"from_state": "OfflinePartition"}

    # Broker 30 gives its last sign at 2 and is found dead at 18.
    yield (
        Story("info")
        .led(0, 30, 4, "unknown", led_at=0.1)
        .in_controller_log(18.01, "Broker failure callback for 30")
        .led(18.2, 2, 5, "offline", **offline, prev_isr=[30, 2], received_at=18.25, led_at=18.3)
    )
    yield (
        Story("trace")
        .led(0, 30, 4, "unknown", led_at=0.1)
        .offline(18.05)
        .led(18.2, 2, 5, "offline", **offline, prev_isr=[30], received_at=18.25, led_at=18.3)
    )
    yield (
        Story("no-log-of-the-new-one")
        .led(0, 30, 4, "unknown", led_at=0.1)
        .led(18.2, 2, 5, "offline", **offline)
        .changes_isr(25, 2)
        .changes_isr(26, 2)
    )
    yield Story("nobody-proves-it").led(0, 30, 4, "unknown", led_at=0.1).led(18.2, 2, 5, "offline", **offline)
    # A preferred election fails while the leader is alive. The controller does not name the leader whose ISR it writes.
    yield (
        Story("wished")
        .led(0, 30, 4, "unknown", led_at=0.1)
        .in_controller_log(
            1, "Error completing replica leader election (PREFERRED) for partition wished-0 because nothing is alive."
        )
        .led(18.2, 2, 5, "offline", **offline)
        .in_controller_log(25, "ISR for partition wished-0 updated to [2,9] and zkVersion updated to [6]", 2)
    )
    yield (
        Story("clocks-are-wrong")
        .led(0, 30, 4, "unknown", led_at=0.1)
        .led(18.2, 2, 5, "offline", **offline, begin_error_us=3_000, led_at=18.3, led_error_us=20_000)
    )
    yield (
        Story("clocks-are-unknown")
        .led(0, 30, 4, "unknown", led_at=0.1)
        .led(18.2, 2, 5, "offline", **offline, begin_error_us=None, led_at=18.3, led_error_us=None)
    )
    yield (
        Story("clocks-contradict")
        .led(0, 30, 4, "unknown", led_at=0.1)
        .led(18.2, 2, 5, "offline", **offline, received_at=18.05, led_at=18.1, led_error_us=200_000)
    )

    # Broker 40 logs nothing for most of an hour before it is found dead at 100; broker 50 has no log.
    yield Story("quiet").led(-3500, 40, 4, "unknown", led_at=-3500).led(100.2, 2, 5, "offline", **offline, led_at=100.4)
    yield (
        Story("no-log-of-the-old-one")
        .led(0, 50, 4, "unknown", led_at=0.1)
        .changes_isr(50, 50)
        .led(100.2, 2, 5, "offline", **offline, led_at=100.4)
    )

    # No absences: the time of the loss of 60 is unknown.
    yield (
        Story("no-controller-log")
        .led(0, 60, 4, "unknown", led_at=0.1)
        .led(200, 2, 5, "offline", **offline, received_at=200.1, led_at=200.3)
    )
    yield Story("begins-in-the-middle").led(5, 2, 5, "offline", **offline, led_at=5.5)

    # Broker 70 gives its last sign at 4, is found dead at 20, and returns at 60.
    yield (
        Story("nobody-lives")
        .led(0, 70, 4, "unknown", led_at=0.1)
        .failed(20.1)
        .led(20.2, -1, 5, "isr")
        .cut(20.2, -1, 5, 70)
        .failed(40.1)
        .led(60, 70, 6, "offline", **offline, prev_isr=[70], received_at=60.1, led_at=60.4)
    )
    # Broker 71 is found dead at 20; at 50 a replica that was not in sync is elected.
    yield (
        Story("nobody-lives-unsaid")
        .led(0, 70, 4, "unknown", led_at=0.1)
        .failed(20.1, why="")
        .led(60, 70, 5, "offline", **offline, led_at=60.4)
    )
    yield (
        Story("other-failure-unsaid")
        .led(0, 70, 4, "unknown", led_at=0.1)
        .failed(20.1, why="")
        .led(60, 71, 5, "offline", **offline, led_at=60.4)
    )
    yield (
        Story("nobody-in-sync")
        .led(0, 71, 4, "unknown", led_at=0.1)
        .offline(20.05)
        .led(50.05, 2, 5, "offline", **offline, prev_isr=[71], prev_isr_sure=True, isr=[2], led_at=50.2)
    )
    # Brokers 220 to 223 are paused at 5, found dead at 20, and resume at 59, or 223 at 20.1.
    for name, broker in (("paused", 220), ("paused-in-kraft", 221)):
        yield (
            Story(name)
            .led(0, broker, 4, "unknown", led_at=0.1)
            .failed(20.1)
            .led(20.2, -1, 5, "isr")
            .led(60, broker, 6, "offline", **offline, prev_isr=[broker], received_at=60.1, led_at=60.4)
        )
    for name, broker in (("paused-and-replaced", 222), ("awake-before-it-is-replaced", 223)):
        yield (
            Story(name)
            .led(0, broker, 4, "unknown", led_at=0.1)
            .offline(20.05)
            .led(20.2, 2, 5, "offline", **offline, prev_isr=[broker, 2], received_at=20.25, led_at=20.3)
        )
    # The dead leader stays leader when another replica is removed from the ISR.
    yield (
        Story("dead-leader-in-a-new-epoch")
        .led(0, 70, 4, "unknown", led_at=0.1)
        .offline(20.05)
        .failed(20.1)
        .led(20.2, 70, 5, "isr")
        .led(20.3, -1, 6, "isr")
        .cut(20.3, -1, 6, 70)
        .led(60, 70, 7, "offline", **offline, led_at=60.4)
    )
    yield (
        Story("never-comes-back")
        .led(0, 70, 4, "unknown", led_at=0.1)
        .failed(20.1)
        .led(20.2, -1, 5, "isr")
        .cut(20.2, -1, 5, 70)
    )
    yield Story("kraft-nobody").led(0, 70, 4, "unknown", led_at=0.1).led(20.2, -1, 5, "isr")
    yield Story("seen-leading-later").led(0, 70, 4, "unknown", led_at=0.1).failed(20.1).changes_isr(44, 71)
    yield (
        Story("lost-then-deleted")
        .led(0, 70, 4, "unknown", led_at=0.1)
        .failed(20.1)
        .in_controller_log(300, "Starting topic deletion for topics other,lost-then-deleted")
    )

    # A restarting controller replays the records of an older topic with the same name.
    yield (
        Story("removed-before")
        .led(0, 70, 4, "unknown", led_at=0.1)
        .in_controller_log(-500, "Replayed RemoveTopicRecord for topic removed-before with ID AbC-dEf_GhIjKlMnOpQrSt.")
        .failed(20.1)
        .in_controller_log(300, "Replayed RemoveTopicRecord for topic removed-before with ID AbC-dEf_GhIjKlMnOpQrSt.")
    )

    # Topics that are deleted while all brokers are alive.
    yield (
        Story("deleted-at-info")
        .led(0, 10, 4, "unknown", led_at=0.1)
        .in_controller_log(30, "Starting topic deletion for topics deleted-at-info")
        .led(30.1, -1, 5, "isr")
        .cut(30.1, -1, 5, 10)
    )
    yield (
        Story("deleted-in-kraft")
        .led(0, 10, 4, "unknown", led_at=0.1)
        .in_controller_log(30, "Deletion of topic deleted-in-kraft (re)started")
        .led(30.1, -1, 5, "isr")
    )
    yield Story("deleted-unsaid").led(0, 10, 4, "unknown", led_at=0.1).led(30.1, -1, 5, "isr").cut(30.1, -1, 5, 10)
    yield (
        Story("deleted-at-trace")
        .led(0, 10, 4, "unknown", led_at=0.1)
        .offline(30)
        .offline(30.001, "Offline", "NonExistent")
    )

    # A live leader is moved from 10 to 11.
    moved: dict[str, Any] = {
        "from_state": "OnlinePartition",
        "prev_isr": [10, 11],
        "received_at": 30.06,
        "led_at": 30.08,
    }
    yield Story("preferred").led(0, 10, 4, "unknown").led(30, 11, 5, "preferred", **moved).follows(30.05, 10, 5)
    yield Story("moved-unseen").led(0, 10, 4, "unknown").led(30, 11, 5, "reassign", **moved)
    yield Story("without-a-gap").led(0, 10, 4, "unknown").led(30, 11, 5, "preferred", **moved).follows(30.2, 10, 5)
    yield (
        Story("early-by-its-clock").led(0, 10, 4, "unknown").follows(29.99, 10, 5).led(30, 11, 5, "preferred", **moved)
    )
    yield (
        Story("moved-for-no-reason")
        .led(0, 10, 4, "unknown")
        .led(90.01, 11, 5, "unknown", led_at=90.02)
        .follows(90, 10, 5)
    )
    yield Story("moved-and-nothing-known").led(0, 10, 4, "unknown").led(90, 11, 5, "unknown", led_at=90.02)
    yield (
        Story("back-as-follower").led(0, 10, 4, "unknown").led(90, 11, 5, "unknown", led_at=90.02).follows(190, 10, 5)
    )

    # No outage.
    yield (
        Story("isr-only")
        .led(0, 10, 4, "unknown", led_at=0.1)
        .changes_isr(20, 10)
        .led(30, 10, 5, "isr", led_at=30.1)
        .cut(30, 10, 5, 9)
        .changes_isr(40, 10)
    )
    yield Story("new").led(10, 10, 0, "initial", from_state="NewPartition", led_at=10.1)
    yield Story("old-controller").led(0, 10, 4, "unknown").led(50, 11, 5, "preferred", **moved)
    yield (
        Story("new-and-nobody-lives")
        .failed(10.1, "New")
        .led(40, 10, 0, "initial", from_state="NewPartition", received_at=40.1, led_at=40.2)
    )

    # A log directory of broker 130 fails at 50.
    yield (
        Story("directory")
        .led(0, 130, 4, "unknown", led_at=0.1)
        .says(50, "Mark replicas directory-0,elsewhere-1 on broker 130 as offline")
        .offline(50.01)
        .led(50.1, 2, 5, "offline", **offline, led_at=50.2)
    )
    yield (
        Story("not-of-that-directory")
        .led(0, 130, 4, "unknown", led_at=0.1)
        .led(50.1, 2, 5, "offline", **offline, led_at=50.2)
    )

    # That of broker 131 fails, too, and only the broker itself logs it.
    yield (
        Story("directory-by-broker")
        .led(0, 131, 4, "unknown", led_at=0.1)
        .directory_fails(50, 131)
        .led(50.1, 2, 5, "offline", **offline, led_at=50.2)
    )

    # The controller 150 is lost with the partitions it leads; broker 160 is lost while there is no controller.
    yield (
        Story("with-the-controller", controller=2, epoch=6)
        .led(0, 150, 4, "unknown", led_at=0.1)
        .led(70.5, 2, 5, "offline", **offline, led_at=70.7)
    )
    elected = "2 successfully elected as the controller. Epoch incremented to 6 and epoch zk version is now 6"
    yield (
        Story("found-at-takeover", controller=2, epoch=6)
        .led(0, 160, 4, "unknown", led_at=0.1)
        .in_controller_log(70, elected, controller=2)
        .in_controller_log(71, "Ready to serve as the new controller with epoch 6", controller=2)
        .led(70.5, 2, 5, "offline", **offline, led_at=70.7)
    )
    yield Story("found-at-takeover-by-logs-that-begin-then", controller=2, epoch=6).led(
        70.5, 2, 5, "offline", **offline, led_at=70.7
    )
    yield (
        Story("long-after-takeover", controller=2, epoch=6)
        .led(0, 160, 4, "unknown", led_at=0.1)
        .led(170.5, 2, 5, "offline", **offline, led_at=170.7)
    )

    # KRaft logs only broker states: 170 is fenced at 80.
    yield Story("fenced").led(0, 170, 4, "unknown", led_at=0.1).led(80.3, 171, 5, "unknown", led_at=80.3)
    yield (
        Story("fenced-after-it-handed-over")
        .led(0, 170, 4, "unknown", led_at=0.1)
        .follows(79.8, 170, 5)
        .led(79.9, 171, 5, "unknown", led_at=79.9)
    )

    # Broker 180 is found dead at 100; 181, elected in its place, died before that and is found dead at 105.
    yield (
        Story("elected-though-dead")
        .led(0, 180, 4, "unknown", led_at=0.1)
        .led(100.1, 181, 5, "offline", **offline)
        .led(105.2, 182, 6, "offline", **offline, received_at=105.25, led_at=105.3)
    )
    yield (
        Story("elected-though-dead-and-nobody-since")
        .led(0, 180, 4, "unknown", led_at=0.1)
        .in_controller_log(100.05, "Broker failure callback for 180")
        .led(100.1, 181, 5, "offline", **offline)
    )

    # Broker 60 follows an unlogged leader: immediately, after a restart, or both.
    yield Story("steps-down").led(0, 60, 4, "unknown", led_at=0.1).led(90, 61, 5, "unknown").follows(90, 60, 5)
    yield (
        Story("is-started").led(0, 60, 4, "unknown", led_at=0.1).led(90, 61, 5, "unknown").follows(90, 60, 5, before=-1)
    )
    yield (
        Story("steps-down-and-is-started")
        .led(0, 60, 4, "unknown", led_at=0.1)
        .led(90, 61, 5, "unknown")
        .follows(90, 60, 5)
        .follows(150, 60, 5, before=-1)
    )

    # No line of broker 50 exists: it led and was lost at 100, or was dead when it was elected.
    yield (
        Story("may-never-have-led")
        .led(0, 60, 4, "unknown", led_at=0.1)
        .led(95, 50, 5, "offline", **offline)
        .led(100.2, 2, 6, "offline", **offline, led_at=100.4)
    )
    yield (
        Story("cannot-have-been-dead")
        .led(0, 60, 4, "unknown", led_at=0.1)
        .led(75, 50, 5, "offline", **offline)
        .led(100.2, 2, 6, "offline", **offline, led_at=100.4)
    )

    # Leaders without any line led between the two.
    yield (
        Story("epochs-are-missing")
        .led(0, 30, 4, "unknown", led_at=0.1)
        .led(400, 2, 9, "offline", **offline, prev_leader_epoch=4, led_at=400.1)
    )
    yield (
        Story("only-the-new-one-knows-the-last")
        .led(0, 170, 4, "unknown", led_at=0.1)
        .led(100.2, 2, 9, "offline", **offline, prev_leader=50, prev_leader_epoch=8, led_at=100.4)
    )
    yield Story("fenced-long-before").led(0, 170, 4, "unknown", led_at=0.1).led(300, 171, 9, "unknown", led_at=300)
    yield (
        Story("epochs-under-one-leader")
        .led(0, 30, 4, "unknown", led_at=0.1)
        .led(5, 30, 5, "isr")
        .led(6, 30, 6, "isr", led_at=6.1)
        .led(18.2, 2, 7, "offline", **offline, led_at=18.3)
    )

    # Broker 190 dies at 20, returns, leads its partition again, and dies again at 200.
    yield (
        Story("twice")
        .led(0, 190, 4, "unknown", led_at=0.1)
        .led(20.2, 191, 5, "offline", **offline, led_at=20.3)
        .led(120, 190, 6, "preferred", from_state="OnlinePartition", led_at=120.1)
        .led(200.2, 191, 7, "offline", **offline, led_at=200.3)
    )

    # Broker 200 has a controlled shutdown, although no replica can take over.
    yield (
        Story("shut-down").led(0, 200, 4, "unknown", led_at=0.1).led(120, 200, 5, "offline", **offline, led_at=120.1)
    )

    # Causes logged with elections, and causes inferred from states.
    yield (
        Story("recovering")
        .led(0, 60, 4, "unknown", led_at=0.1)
        .led(200, 2, 5, "offline", **offline, prev_isr=[60, 2], recovery="RECOVERING", led_at=200.3)
    )
    warned = "No broker in ISR is alive for warned-0. Elect leader 2 from live brokers 2. There's potential data loss."
    yield (
        Story("warned")
        .led(0, 60, 4, "unknown", led_at=0.1)
        .in_controller_log(199.9, warned)
        .led(200, 2, 5, "offline", **offline, led_at=200.3)
    )


def _away(broker: int, detected: float, **more: Any) -> dict[str, Any]:
    """Returns a row of `absences`, bounded only by last sign and detection because its session timeout is assumed."""
    sign = more.get("last_sign_at")
    silent: dict[str, float] = {} if sign is None else {"silent_low": sign, "silent_at": max(sign, detected - 18)}
    silent["silent_high"] = detected
    times = {name: moment(more.pop(name)) for name in ("last_sign_at", "back_at") if name in more}
    silences = {name: moment(at) for name, at in silent.items()}
    row = {"broker": broker, "detected_at": moment(detected), "how": "failed", "planned": False, "error_us": 0}
    return row | times | silences | more


def _paused(silent: float, awake: float) -> dict[str, Any]:
    """Returns columns of a broker that becomes silent within two seconds, by its session, and resumes later."""
    times = {"silent_at": silent, "silent_low": silent - 1, "silent_high": silent + 1, "awake_at": awake}
    return {name: moment(at) for name, at in times.items()}


ABSENCES: Final = (
    _away(30, 18, last_sign_at=2),
    _away(40, 100, last_sign_at=-3000),
    _away(50, 100),
    _away(70, 20, last_sign_at=4, back_at=59),
    _away(150, 70.2, last_sign_at=64, how="controller"),
    _away(170, 80, last_sign_at=75, how="fenced", error_us=500_000),
    _away(180, 100, last_sign_at=90),
    _away(181, 105, last_sign_at=95),
    _away(190, 20, last_sign_at=10, back_at=100),
    _away(190, 200, last_sign_at=190),
    _away(200, 100, last_sign_at=99, how="stopped", planned=True),
    _away(220, 20, last_sign_at=2) | _paused(5, 59),
    _away(221, 20, last_sign_at=2, how="fenced") | _paused(5, 59),
    _away(222, 20, last_sign_at=2) | _paused(5, 59),
    _away(223, 20, last_sign_at=2) | _paused(5, 20.1),
    _away(30, 450, last_sign_at=440),  # long after all its other lines
)
# Of a controller that has been replaced, with a clock that is ahead.
OLD_CONTROLLER: Final = line(
    55,
    "[Controller id=3 epoch=4] Changed partition old-controller-0 state from OnlinePartition to OfflinePartition",
    level="TRACE",
)
OLD_CONTROLLER_FAILED: Final = line(
    56,
    "[Controller id=3 epoch=4] Controller 3 epoch 4 failed to change state for partition old-controller-0 from "
    "OfflinePartition to OnlinePartition\n" + NOBODY_LIVES.format(name="old-controller"),
    level="ERROR",
)


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> Rows:
    """Returns the outages of a topic, in order of time. All logs occur twice, as with a copy beside the original."""
    stories = list(_stories())
    assert len({each.name for each in stories}) == len(stories)
    lines = [text for each in stories for text in each.lines] + [OLD_CONTROLLER, OLD_CONTROLLER_FAILED]
    of_controllers = [text for each in stories for text in each.of_controllers]
    of_controllers.append(controller_line(LOGS_END, 1, "Processing automatic preferred replica leader election"))
    # Brokers log for longer than controllers do.
    later = line(
        LOGS_END + 100, "[Broker id=5] Handling LeaderAndIsr request correlationId 7 from controller 1 for 1 partitions"
    )
    logs = {
        (1, Kind.STATE_CHANGE): [*lines, later],
        (2, Kind.STATE_CHANGE): lines,
        (1, Kind.CONTROLLER): of_controllers,
        (2, Kind.CONTROLLER): of_controllers,
    }
    timed = as_timed(events(spark, logs))
    led = table(spark, leadership.COLUMNS, [row for each in stories for row in each.leaderships])
    away = table(spark, absences.COLUMNS, ABSENCES)
    all_rows = rows(outages.outages(timed, led, away), "topic", "begin")
    return lambda topic: [row for row in all_rows if row["topic"] == topic]


def at(time: datetime.datetime | None) -> float | None:
    """Returns the seconds after ten o'clock."""
    return None if time is None else (time - moment(0)).total_seconds()


def times(row: dict[str, Any], name: str) -> tuple[Any, ...]:
    """Returns low, guess, high and kind of `begin` or `end`."""
    return (*(at(row[column]) for column in (f"{name}_low", name, f"{name}_high")), row[f"{name}_kind"])


def parts(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in PARTS)


# -- lost leaders ------------------------------------------------------------------------------------------------------


def test_outage_at_info_lasts_from_last_sign_to_new_leader(found: Rows) -> None:
    (row,) = found("info")

    assert times(row, "begin") == (2, 2, 18, "inferred")
    assert times(row, "end") == (18.3, 18.3, 18.3, "observed")
    assert (row["duration_ms"], row["duration_min_ms"], row["duration_max_ms"]) == (16_300, 300, 16_300)
    assert (row["planned"], row["cause"], row["broker"], row["new_leader"]) == (False, "broker-failure", 30, 2)
    assert (row["leader_epoch"], row["controller"], row["controller_epoch"]) == (5, 1, 5)
    assert (row["unclean"], row["attempts_failed"], row["reason"]) == (False, 0, None)


def test_parts_are_bounded_by_lines_and_add_up(found: Rows) -> None:
    (row,) = found("info")

    moments = [at(row[f"{name}_at"]) for name in ("last_sign", "detected", "begun", "elected", "received", "led")]
    assert moments == [2, 18, 18.01, 18.2, 18.25, 18.3]
    assert parts(row) == (16_000, 10, None, 190, 50, 50)
    assert sum(part or 0 for part in parts(row)) == row["duration_ms"]


def test_offline_partition_does_not_show_the_leaders_death(found: Rows) -> None:
    (row,) = found("trace")

    assert times(row, "begin") == (2, 2, 18, "inferred")
    assert at(row["begun_at"]) == 18.05
    assert parts(row) == (16_000, 50, None, 150, 50, 50)


def test_long_silence_before_a_loss_is_not_all_outage(found: Rows) -> None:
    (row,) = found("quiet")

    assert times(row, "begin") == (-3000, 82, 100, "inferred")
    assert row["duration_max_ms"] == 3_100_400


def test_leader_without_log_is_lost_at_detection(found: Rows) -> None:
    (row,) = found("no-log-of-the-old-one")

    # The ISR change shows that it led until then.
    assert times(row, "begin") == (50, 100, 100, "inferred")


def test_begin_without_cause_is_bounded_by_partition_lines(found: Rows) -> None:
    (row,) = found("no-controller-log")

    assert times(row, "begin") == (0.1, 200, 200, "bounded")
    assert (row["duration_ms"], row["duration_max_ms"]) == (300, 200_200)
    assert (row["cause"], row["broker"]) == ("unknown", 60)
    assert parts(row) == (None, None, None, None, 100, 200)


def test_truncated_logs_have_no_lower_bound(found: Rows) -> None:
    (row,) = found("begins-in-the-middle")

    assert times(row, "begin") == (None, 5, 5, "bounded")
    assert (row["duration_ms"], row["duration_max_ms"], row["broker"]) == (500, None, None)


def test_isr_change_proves_a_new_leader_without_log(found: Rows) -> None:
    (row,) = found("no-log-of-the-new-one")

    assert times(row, "end") == (18.2, 18.2, 25, "inferred")
    assert (row["duration_ms"], row["duration_max_ms"]) == (16_200, 23_000)
    assert parts(row)[-2:] == (None, None)


def test_maximum_duration_is_null_without_new_leader_lines(found: Rows) -> None:
    (row,) = found("nobody-proves-it")

    assert times(row, "end") == (18.2, 18.2, None, "inferred")
    assert row["duration_max_ms"] is None


def test_controllers_isr_line_does_not_prove_that_its_broker_leads(found: Rows) -> None:
    (row,) = found("wished")

    assert times(row, "end") == (18.2, 18.2, None, "inferred")


def test_failed_preferred_election_is_no_reason_of_an_outage(found: Rows) -> None:
    (row,) = found("wished")

    assert (row["attempts_failed"], row["reason"]) == (0, None)


def test_bounds_hold_within_the_clock_error(found: Rows) -> None:
    (row,) = found("clocks-are-wrong")

    assert times(row, "begin") == (2, 2, 18.003, "inferred")
    assert times(row, "end") == (18.28, 18.3, 18.32, "observed")
    assert (row["duration_min_ms"], row["duration_max_ms"]) == (277, 16_320)


def test_unknown_clock_has_an_assumed_error(found: Rows) -> None:
    (row,) = found("clocks-are-unknown")

    assert times(row, "begin") == (2, 2, 18.05, "inferred")
    assert times(row, "end") == (18.25, 18.3, 18.35, "observed")


def test_leader_never_leads_before_its_election(found: Rows) -> None:
    (row,) = found("clocks-contradict")

    assert times(row, "end") == (18.2, 18.2, 18.3, "observed")
    assert parts(row)[-2:] == (0, 0)


def test_failed_elections_prolong_one_outage(found: Rows) -> None:
    (row,) = found("nobody-lives")

    assert times(row, "begin") == (4, 4, 20, "inferred")
    assert times(row, "end") == (60.4, 60.4, 60.4, "observed")
    assert (row["cause"], row["broker"], row["new_leader"], row["unclean"]) == ("no-live-replica", 70, 70, False)
    assert (row["attempts_failed"], row["reason"]) == (2, NOBODY_LIVES.format(name="nobody-lives").split(": ")[1])
    assert parts(row) == (16_000, 100, 39_900, None, 100, 300)


def test_lost_leader_that_returns_shows_why_an_election_failed(found: Rows) -> None:
    (returned,), (replaced,) = found("nobody-lives-unsaid"), found("other-failure-unsaid")

    assert (returned["cause"], replaced["cause"]) == ("no-live-replica", "broker-failure")


def test_unclean_election_after_a_wait_took_no_time_itself(found: Rows) -> None:
    (row,) = found("nobody-in-sync")

    assert row["unclean"]
    assert (row["waiting_ms"], row["election_ms"]) == (30_000, None)


def test_session_bounds_the_begin(found: Rows) -> None:
    (row,) = found("paused")

    assert times(row, "begin") == (4, 5, 6, "inferred")


def test_unreplaced_paused_leader_leads_from_its_first_line(found: Rows) -> None:
    (row,) = found("paused")

    assert times(row, "end") == (59, 59, 60.4, "inferred")
    assert (row["duration_ms"], row["duration_min_ms"], row["duration_max_ms"]) == (54_000, 53_000, 56_400)


def test_paused_kraft_leader_steps_down_after_its_first_line(found: Rows) -> None:
    (row,) = found("paused-in-kraft")

    assert times(row, "end") == (59, 60.4, 60.4, "observed")


def test_replaced_paused_leader_ends_no_outage(found: Rows) -> None:
    (row,) = found("paused-and-replaced")

    assert times(row, "end") == (20.3, 20.3, 20.3, "observed")


def test_leader_awake_before_replacement_bounds_the_end(found: Rows) -> None:
    (row,) = found("awake-before-it-is-replaced")

    assert times(row, "end") == (20.1, 20.3, 20.3, "observed")


def test_dead_leader_of_new_epoch_ends_no_outage(found: Rows) -> None:
    (row,) = found("dead-leader-in-a-new-epoch")

    assert (at(row["begin"]), at(row["end"]), row["leader_epoch"]) == (4, 60.4, 7)


def test_open_outage_lasts_to_the_end_of_controller_logs(found: Rows) -> None:
    (row,) = found("never-comes-back")

    assert times(row, "end") == (LOGS_END, None, None, "open")
    assert (row["duration_ms"], row["duration_min_ms"], row["duration_max_ms"]) == (496_000, 480_000, None)
    assert (row["new_leader"], row["leader_epoch"], row["unclean"]) == (None, None, None)
    assert parts(row) == (16_000, 100, 479_900, None, None, None)


def test_kraft_outage_is_stored_without_leader(found: Rows) -> None:
    (row,) = found("kraft-nobody")

    assert times(row, "begin") == (4, 4, 20, "inferred")
    assert (row["end_kind"], row["cause"]) == ("open", "no-live-replica")


def test_later_sign_of_a_leader_bounds_the_end(found: Rows) -> None:
    (row,) = found("seen-leading-later")

    assert times(row, "end") == (20.1, 44, 44, "bounded")
    assert row["new_leader"] == 71


def test_deletion_of_the_topic_ends_the_outage(found: Rows) -> None:
    (row,) = found("lost-then-deleted")

    assert times(row, "end") == (300, 300, 300, "observed")
    assert row["new_leader"] is None


def test_replayed_removal_ends_no_outage(found: Rows) -> None:
    (row,) = found("removed-before")

    assert row["end"] is None


def test_new_partition_without_live_replica_is_unavailable(found: Rows) -> None:
    (row,) = found("new-and-nobody-lives")

    assert times(row, "begin") == (10.1, 10.1, 10.1, "observed")
    assert at(row["end"]) == 40.2
    assert (row["cause"], row["broker"], row["new_leader"]) == ("no-live-replica", None, 10)


def test_failed_directory_affects_named_partitions(found: Rows) -> None:
    (row,) = found("directory")
    (other,) = found("not-of-that-directory")
    (by_broker,) = found("directory-by-broker")

    assert times(row, "begin") == (0.1, 50, 50, "inferred")
    assert (row["cause"], row["broker"], at(row["detected_at"])) == ("replica-failure", 130, 50)
    assert (other["cause"], other["begin_kind"]) == ("unknown", "bounded")
    assert (by_broker["cause"], by_broker["broker"], at(by_broker["detected_at"])) == ("replica-failure", 131, 50)


def test_dead_controller_is_the_cause_of_its_outages(found: Rows) -> None:
    (row,) = found("with-the-controller")

    assert times(row, "begin") == (64, 64, 70.2, "inferred")
    assert (row["cause"], row["controller"]) == ("controller-change", 2)


def test_loss_found_at_takeover_is_detected_at_election(found: Rows) -> None:
    (row,) = found("found-at-takeover")
    (later,) = found("long-after-takeover")

    assert times(row, "begin") == (0.1, 70, 70.5, "inferred")
    assert (row["cause"], at(row["detected_at"])) == ("controller-change", 70)
    assert (later["cause"], later["detected_at"]) == ("unknown", None)


def test_unknown_previous_leader_does_not_mean_new_partition(found: Rows) -> None:
    (row,) = found("found-at-takeover-by-logs-that-begin-then")

    assert times(row, "begin") == (None, 70, 70.5, "inferred")
    assert (row["cause"], row["broker"], at(row["detected_at"])) == ("controller-change", None, 70)


def test_kraft_fencing_ends_the_leadership(found: Rows) -> None:
    (row,) = found("fenced")

    assert times(row, "begin") == (74.5, 75, 80, "inferred")
    assert (at(row["end"]), row["elected_at"]) == (80.3, None)
    assert (row["planned"], row["cause"], row["broker"]) == (False, "broker-failure", 170)


def test_last_known_leader_is_not_lost_if_epochs_are_missing(found: Rows) -> None:
    (row,) = found("epochs-are-missing")
    (told,) = found("only-the-new-one-knows-the-last")

    assert times(row, "begin") == (0.1, 400, 400, "bounded")
    assert (row["broker"], row["cause"], row["detected_at"]) == (None, "unknown", None)
    assert (told["broker"], told["cause"], at(told["detected_at"])) == (50, "broker-failure", 100)


def test_epochs_that_rose_under_one_leader_are_not_missing(found: Rows) -> None:
    (row,) = found("epochs-under-one-leader")

    # It led again at 6.1, after its last sign in the table of absences.
    assert times(row, "begin") == (6.1, 6.1, 18, "inferred")
    assert row["broker"] == 30


def test_elected_dead_leader_ends_no_outage(found: Rows) -> None:
    (row,) = found("elected-though-dead")

    assert (at(row["begin"]), at(row["end"])) == (90, 105.3)
    assert (row["broker"], row["new_leader"], at(row["detected_at"])) == (180, 182, 100)


def test_open_outage_has_a_known_begin(found: Rows) -> None:
    (row,) = found("elected-though-dead-and-nobody-since")

    assert (row["broker"], row["new_leader"], row["end_kind"]) == (180, None, "open")
    assert (row["detected_at"], row["begun_at"]) == (moment(100), moment(100.05))


def test_begin_is_unbounded_if_leader_was_maybe_elected_dead(found: Rows) -> None:
    first, second = found("may-never-have-led")

    assert times(first, "end") == (95, 95, None, "inferred")
    assert times(second, "begin") == (None, 100, 100, "inferred")
    assert second["duration_max_ms"] is None
    # A dead broker is detected within one session timeout.
    _, later = found("cannot-have-been-dead")
    assert times(later, "begin") == (75, 100, 100, "inferred")


def test_two_deaths_are_two_outages_and_one_move(found: Rows) -> None:
    first, moved, second = found("twice")

    assert (at(first["begin"]), at(first["end"]), first["planned"]) == (10, 20.3, False)
    assert (at(moved["begin"]), at(moved["end"]), moved["planned"]) == (120, 120.1, True)
    assert (at(second["begin"]), at(second["end"]), second["planned"]) == (190, 200.3, False)


def test_shutdown_without_successor_is_not_planned(found: Rows) -> None:
    (row,) = found("shut-down")

    assert (row["planned"], row["cause"], row["duration_ms"]) == (False, "controlled-shutdown", 21_100)


# -- moved leaders -----------------------------------------------------------------------------------------------------


def test_planned_move_lasts_from_step_down_to_new_leader(found: Rows) -> None:
    (row,) = found("preferred")

    assert times(row, "begin") == (30.05, 30.05, 30.05, "observed")
    assert times(row, "end") == (30.08, 30.08, 30.08, "observed")
    assert (row["duration_ms"], row["planned"], row["cause"]) == (30, True, "preferred")
    assert (row["broker"], row["new_leader"], row["unclean"]) == (10, 11, False)
    assert parts(row) == (None, None, None, None, 10, 20)


def test_move_without_old_leader_log_is_bounded_by_decision(found: Rows) -> None:
    (row,) = found("moved-unseen")

    assert times(row, "begin") == (30, 30, 30.08, "inferred")
    assert (row["duration_ms"], row["duration_min_ms"], row["cause"]) == (80, 0, "reassign")
    assert parts(row) == (None, None, None, None, 60, 20)


def test_overlapping_leaders_leave_no_gap(found: Rows) -> None:
    (row,) = found("without-a-gap")

    assert (at(row["begin"]), at(row["end"]), row["duration_ms"]) == (30.08, 30.08, 0)


def test_early_step_down_line_belongs_to_its_epoch(found: Rows) -> None:
    (row,) = found("early-by-its-clock")

    assert times(row, "begin") == (29.99, 29.99, 29.99, "observed")
    assert sum(part or 0 for part in parts(row)) <= row["duration_ms"] == 90


def test_unexplained_move_has_null_planned(found: Rows) -> None:
    (row,) = found("moved-for-no-reason")

    assert (row["planned"], row["cause"], row["duration_ms"]) == (None, "unknown", 20)
    (row,) = found("fenced-after-it-handed-over")
    assert (row["planned"], row["cause"], row["duration_ms"]) == (None, "unknown", 100)


def test_restarted_old_leader_did_not_step_down(found: Rows) -> None:
    for topic in ("steps-down", "steps-down-and-is-started"):
        (row,) = found(topic)
        assert times(row, "begin") == (90, 90, 90, "observed")

    assert found("is-started") == []


# -- clean or unclean --------------------------------------------------------------------------------------------------


def test_unclean_follows_from_isr_or_from_lines(found: Rows) -> None:
    assert [found(name)[0]["unclean"] for name in ("trace", "recovering", "warned")] == [True, True, True]
    assert [found(name)[0]["unclean"] for name in ("info", "nobody-lives")] == [False, False]
    assert found("quiet")[0]["unclean"] is None


# -- no outage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "topic", ["isr-only", "new", "moved-and-nothing-known", "back-as-follower", "fenced-long-before"]
)
def test_lines_without_proof_give_no_outage(found: Rows, topic: str) -> None:
    assert found(topic) == []


@pytest.mark.parametrize("topic", ["deleted-at-info", "deleted-in-kraft", "deleted-unsaid", "deleted-at-trace"])
def test_deleted_topic_is_not_unavailable(found: Rows, topic: str) -> None:
    assert found(topic) == []


def test_replaced_controller_makes_no_later_outage(found: Rows) -> None:
    (row,) = found("old-controller")

    assert row["planned"]


# -- all outages -------------------------------------------------------------------------------------------------------


def test_bounds_include_estimate_and_parts_are_positive(found: Rows) -> None:
    everything = [row for each in _stories() for row in found(each.name)]

    for row in everything:
        assert row["begin_low"] is None or row["begin_low"] <= row["begin"]
        assert row["begin"] <= row["begin_high"]
        assert row["end"] is None or row["end_low"] <= row["end"]
        assert row["end"] is None or row["end_high"] is None or row["end"] <= row["end_high"]
        assert row["duration_min_ms"] <= row["duration_ms"]
        assert row["duration_max_ms"] is None or row["duration_ms"] <= row["duration_max_ms"]
        assert all(part is None or part >= 0 for part in parts(row))
        assert sum(part or 0 for part in parts(row)) <= row["duration_ms"]
    assert len(everything) >= 30
