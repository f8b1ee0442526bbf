"""Simulation of a cluster with its brokers, controllers and logs.

Every operation takes time: `now` advances, records are produced, brokers write unrelated lines, and lines before `now`
are written to the files.
"""

import base64
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from .broker_lines import BrokerLines
from .brokers import Broker, Brokers
from .cluster import Cluster, Partition, Topic, agreement
from .controller_lines import KafkaLines, Lines
from .journal import Clock, Journal
from .kactl_lines import KactlLines
from .quorum import QuorumControl
from .states import Version
from .truth import Recorder, Truth
from .zookeeper import ZooKeeperControl

# Some minutes before a full hour on 2024-05-01.
BEGIN_MS: Final = 1_714_550_400_000.0 + 52 * 60_000
# Ids of controllers that are not brokers.
KACTL_IDS: Final = (900, 901)
QUORUM_IDS: Final = (3000, 3001, 3002)
REPLICAS: Final = 3
_NOISE: Final = (
    "INFO [GroupCoordinator {0}]: Stabilized group g-{1} generation {2} with 3 members "
    "(kafka.coordinator.group.GroupCoordinator)",
    "INFO [Log partition=events-{1}, dir=/data/kafka] Rolled new log segment at offset {2} in 2 ms. (kafka.log.Log)",
    "INFO [ProducerStateManager partition=events-{1}] Wrote producer snapshot at offset {2} "
    "(kafka.log.ProducerStateManager)",
    "WARN [SocketServer brokerId={0}] Unexpected error from /10.0.0.{1}; closing connection "
    "(org.apache.kafka.common.network.Selector)",
)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a simulation.

    Attributes:
        lines: minimum number of lines.
        versions: versions of the brokers, assigned in turn, such as `2.8:info` or `3.9:trace`.
        skew_ms, drift_ppm: maximum error of clocks in either direction.
        rate: records per second and partition.
        noise: unrelated lines per second and broker.
        rounds: how often each incident occurs, in random order; 0 for random incidents until there are enough lines.
    """

    seed: int = 1
    lines: int = 0
    kind: Literal["zookeeper", "kraft", "kactl"] = "zookeeper"
    brokers: int = 6
    partitions: int = 60
    versions: tuple[str, ...] = ("2.8:info", "3.2:info", "3.9:info")
    skew_ms: int = 400
    drift_ppm: float = 0.0
    rate: float = 100.0
    noise: float = 0.2
    rounds: int = 1


class Simulation:
    """A running cluster."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.chance = random.Random(settings.seed)
        self.truth = Truth(seed=settings.seed, begin=BEGIN_MS)
        self.recorder = Recorder(self.truth)
        self.cluster = Cluster(self.chance)
        self.brokers = Brokers(self.cluster, self.recorder)
        self.now = BEGIN_MS
        self.journals: list[Journal] = []
        self._folder = folder
        self._clocks: dict[int, Clock] = {}
        self._lives: dict[str, int] = {}
        self._dead: dict[int, tuple[float, bool]] = {}
        lines: dict[int, Lines] = {}
        for number in range(1, settings.brokers + 1):
            lines[number] = self._add_broker(number)
        self.control = self._controllers(lines)

    # -- building ------------------------------------------------------------------------------------------------------

    def _add_broker(self, number: int) -> Lines:
        name, _, level = self.settings.versions[(number - 1) % len(self.settings.versions)].partition(":")
        major, minor = name.split(".")
        version: Version = (int(major), int(minor))
        self.truth.versions[number] = name
        clock = self._clock(number)
        if number % 5 == 0:  # in a container, with all lines in one stream
            stream = self._journal(Path(f"kafka-{number}.log"), clock, container=f"kafka-{number}")
            state = server = log = stream
        else:
            home = Path(f"broker-{number}")
            packed = number % 3 == 0
            state = self._journal(home / "state-change.log", clock, packed=packed)
            server = self._journal(home / "server.log", clock, packed=packed)
            log = state
            if self.settings.kind == "zookeeper":
                log = self._journal(home / "controller.log", clock, packed=packed)
        trace = level == "trace"
        broker = Broker(number, BrokerLines(number, version, trace=trace, state=state, server=server))
        self.brokers.by_id[number] = broker
        return KafkaLines(number, version, trace=trace, state=state, log=log)

    def _controllers(self, lines: dict[int, Lines]) -> ZooKeeperControl | QuorumControl:
        kind = self.settings.kind
        if kind == "kraft":
            logs = {
                number: self._journal(Path(f"controller-{number}") / "controller.log", self._clock(number))
                for number in QUORUM_IDS
            }
            # The active controller writes the records. All controllers share one clock, so that the records do too.
            dump = self._journal(Path("metadata.txt"), self._clocks[QUORUM_IDS[0]], bare=True)
            self.truth.dump = QUORUM_IDS[0]
            control = QuorumControl(self.cluster, self.brokers, self.recorder, logs, dump)
            self.now = control.take_over(self.now, QUORUM_IDS[0])
            for broker in self.brokers.by_id:
                self.now = control.started(self.now, broker)
            return control
        if kind == "kactl":
            lines = {
                number: KactlLines(number, self._journal(Path(f"kactl-{number}.jsonl"), self._clock(number), bare=True))
                for number in KACTL_IDS
            }
        return ZooKeeperControl(self.cluster, self.brokers, self.recorder, lines)

    def _clock(self, number: int) -> Clock:
        if number in QUORUM_IDS[1:]:
            clock = self._clocks[QUORUM_IDS[0]]
        else:
            skew, drift = self.settings.skew_ms, self.settings.drift_ppm
            clock = Clock(BEGIN_MS, self.chance.randint(-skew, skew), self.chance.uniform(-drift, drift))
        self._clocks[number] = clock
        self.truth.offsets_ms[number], self.truth.drifts_ppm[number] = clock.offset_ms, clock.drift_ppm
        return clock

    def _journal(
        self, name: Path, clock: Clock, *, container: str = "", packed: bool = False, bare: bool = False
    ) -> Journal:
        journal = Journal(self._folder / name, clock, container=container, packed=packed, bare=bare)
        self.journals.append(journal)
        return journal

    # -- time ----------------------------------------------------------------------------------------------------------

    def wait(self, ms: float) -> None:
        """Advances the time; brokers write unrelated lines."""
        begin, self.now = self.now, self.now + ms
        expected = self.settings.noise * ms / 1000
        for broker in self.brokers.by_id.values():
            if broker.alive:
                count = int(expected + self.chance.random())
                for _ in range(count):
                    text = self.chance.choice(_NOISE).format(broker.id, self.chance.randrange(100), int(begin) % 10**9)
                    broker.lines.noise(begin + self.chance.random() * ms, text)
        self.flush()

    def advance_to(self, time_ms: float) -> None:
        """Advances to a time, unless it has passed."""
        self.now = max(self.now, time_ms)

    def flush(self) -> None:
        for journal in self.journals:
            journal.flush(self.now)

    def written(self) -> int:
        return sum(journal.written for journal in self.journals)

    def close(self) -> None:
        """Ends the logs; brokers that are stopped do not return."""
        self.wait(2000)
        for number, (died, planned) in sorted(self._dead.items()):
            self.truth.absences.append((number, died, None, planned))
            self._record_missing_truncations(number)
        self.recorder.close([p for topic in self.cluster.topics.values() for p in topic.partitions], self.now)
        for journal in self.journals:
            journal.flush(float("inf"))
            journal.close()
        self.truth.lines = self.written()
        self.truth.write(self._folder)

    def _record_missing_truncations(self, number: int) -> None:
        """Records the truncations that a stopped broker would perform."""
        for p in self.cluster.hosted[number]:
            if p.serving is not None and number in p.logs:
                self.cluster.advance(p, self.now)
                log = p.logs[number]
                same = agreement(log, p.logs[p.serving])
                if same < log.end:
                    self.recorder.cut(p, self.now, number, log.end, same, seen=False)

    # -- brokers -------------------------------------------------------------------------------------------------------

    def session(self) -> float:
        return self.chance.uniform(6_000, 12_000)

    def kill(self, *numbers: int) -> None:
        """Stops brokers at once; the controller notices when their sessions expire."""
        for number in numbers:
            self._dead[number] = (self.now, False)
            self.brokers.fail(self.brokers[number], self.now)
        ends = sorted((self.session(), number) for number in numbers)
        passed = 0.0
        for after, number in ends:
            self.wait(max(0.0, after - passed))
            passed = after
            self.expire_session(number)

    def expire_session(self, number: int) -> None:
        """Expires a session; if it is the controller's, another controller takes over."""
        if number == self.control.active:
            self.advance_to(self.control.take_over(self.now, self.chance.choice(self.brokers.alive())))
        else:
            self.advance_to(self.control.failed(self.now, number))

    def stop(self, number: int) -> None:
        """Stops a broker by controlled shutdown."""
        self.advance_to(self.control.stop(self.now, number))
        self.wait(800)
        self._dead[number] = (self.now, True)
        self.brokers.fail(self.brokers[number], self.now, planned=True)
        self.wait(self.chance.uniform(20, 200))
        self.expire_session(number)

    def restart(self, number: int, after: float = 0.0) -> None:
        """Restarts a broker; its replicas rejoin the ISRs."""
        self.wait(after)
        died, planned = self._dead.pop(number)
        self.brokers.start(self.brokers[number], self.now)
        self.truth.absences.append((number, died, self.now, planned))
        self.wait(self.chance.uniform(300, 900))
        self.advance_to(self.control.started(self.now, number))
        self.wait(self.chance.uniform(1_000, 4_000))
        self.recover(self.cluster.hosted[number])

    def recover(self, partitions: Iterable[Partition]) -> None:
        """Adds replicas that have caught up to their ISRs."""
        grown = []
        time_ms = self.now
        for p in partitions:
            for broker in p.replicas:
                ready = p.serving == p.leader and broker in p.fetching and broker not in p.slow
                if ready and broker not in p.isr and not p.topic.deleting:
                    time_ms = max(time_ms + 0.1, self.control.proposed(time_ms, p, (*p.isr, broker)) - 1.9)
                    grown.append(p)
        self.advance_to(time_ms + 10)
        if grown:
            self.advance_to(self.control.propagate(self.now, dict.fromkeys(grown)))
        self.wait(500)

    def fall_behind(self, p: Partition, followers: Sequence[int]) -> bool:
        """Stops followers from copying, so that they leave the ISR; returns False if the leader cannot remove them."""
        if p.serving is None or p.serving != p.leader or p.serving in followers:
            return False
        self.cluster.advance(p, self.now)
        p.slow.update(followers)
        self.wait(self.chance.uniform(2_000, 6_000))
        isr = tuple(broker for broker in p.isr if broker not in followers)
        if len(isr) < len(p.isr):
            self.advance_to(self.control.proposed(self.now, p, isr))
            self.advance_to(self.control.propagate(self.now, [p]))
        self.wait(self.chance.uniform(1_000, 3_000))
        return True

    def catch_up(self, p: Partition) -> None:
        """Resumes copying by the followers of a partition, which then rejoin the ISR."""
        p.slow.clear()
        self.wait(self.chance.uniform(500, 2_000))
        self.recover([p])

    # -- topics --------------------------------------------------------------------------------------------------------

    def topic(self, name: str, partitions: int, *, unclean: bool = False) -> Topic:
        """Returns a new topic with replicas on random brokers; the controller does not know it yet."""
        life = self._lives.get(name, -1) + 1
        self._lives[name] = life
        id = base64.urlsafe_b64encode(self.chance.randbytes(16))[:22].decode()
        topic = Topic(name, id=id, life=life, unclean=unclean)
        ids = list(self.brokers.by_id)
        assigned = [tuple(self.chance.sample(ids, min(REPLICAS, len(ids)))) for _ in range(partitions)]
        self.cluster.add(topic, assigned, self.settings.rate / 1000)
        for p in topic.partitions:
            p.advanced_at = self.now
        return topic

    def partitions(self, *, unclean: bool | None = None) -> list[Partition]:
        """Returns the partitions that have a leader and all replicas in sync."""
        return [
            p
            for topic in self.cluster.topics.values()
            for p in topic.partitions
            if (unclean is None or topic.unclean is unclean) and p.serving == p.leader and len(p.isr) == len(p.replicas)
        ]
