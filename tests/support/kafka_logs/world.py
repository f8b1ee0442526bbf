"""A cluster with its brokers, controllers and logs, and what can be done to it.

Whatever is done takes time: `now` goes on, records flow, brokers write what is of no interest, and what is older than
`now` goes to the files.
"""

import base64
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from .broker_lines import BrokerLines
from .brokers import Broker, Brokers
from .cluster import Cluster, Partition, Topic, agree
from .controller_lines import KafkaLines, Lines
from .journal import Clock, Journal
from .kactl_lines import KactlLines
from .quorum import QuorumControl
from .states import Version
from .truth import Truth, Watch
from .zookeeper import ZooKeeperControl

# 2024-05-01 08:00 UTC, and some minutes before a full hour.
BEGIN_MS: Final = 1_714_550_400_000.0 + 52 * 60_000
# Controllers that are no brokers.
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
    """What is asked for.

    Attributes:
        lines: at least so many are written.
        versions: of the brokers, going round; `2.8:info` or `3.9:trace`.
        skew_ms, drift_ppm: clocks are wrong by up to so much, either way.
        rate: records in a second and partition.
        noise: lines of no interest in a second and broker.
        rounds: every incident so often, in a drawn order; 0 draws incidents until there are enough lines.
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


class World:
    """See the module."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.chance = random.Random(settings.seed)
        self.truth = Truth(seed=settings.seed, begin=BEGIN_MS)
        self.watch = Watch(self.truth)
        self.cluster = Cluster(self.chance)
        self.brokers = Brokers(self.cluster, self.watch)
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
        if number % 5 == 0:  # this one runs in a container, whose one stream has everything
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
            # Whoever is in charge writes the records; so that they are on one clock, all of these have the same.
            dump = self._journal(Path("metadata.txt"), self._clocks[QUORUM_IDS[0]], bare=True)
            self.truth.dump = QUORUM_IDS[0]
            control = QuorumControl(self.cluster, self.brokers, self.watch, logs, dump)
            self.now = control.take_over(self.now, QUORUM_IDS[0])
            for broker in self.brokers.by_id:
                self.now = control.started(self.now, broker)
            return control
        if kind == "kactl":
            lines = {
                number: KactlLines(number, self._journal(Path(f"kactl-{number}.jsonl"), self._clock(number), bare=True))
                for number in KACTL_IDS
            }
        return ZooKeeperControl(self.cluster, self.brokers, self.watch, lines)

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
        """Nothing happens, and that is written too."""
        begin, self.now = self.now, self.now + ms
        expected = self.settings.noise * ms / 1000
        for broker in self.brokers.by_id.values():
            if broker.alive:
                count = int(expected + self.chance.random())
                for _ in range(count):
                    text = self.chance.choice(_NOISE).format(broker.id, self.chance.randrange(100), int(begin) % 10**9)
                    broker.lines.noise(begin + self.chance.random() * ms, text)
        self.flush()

    def until(self, at: float) -> None:
        """Go on to a time at which something was done."""
        self.now = max(self.now, at)

    def flush(self) -> None:
        for journal in self.journals:
            journal.flush(self.now)

    def written(self) -> int:
        return sum(journal.written for journal in self.journals)

    def close(self) -> None:
        """The logs end; what has not come back by now has not."""
        self.wait(2000)
        for number, (died, planned) in sorted(self._dead.items()):
            self.truth.absences.append((number, died, None, planned))
            self._unseen(number)
        self.watch.close([p for topic in self.cluster.topics.values() for p in topic.partitions], self.now)
        for journal in self.journals:
            journal.flush(float("inf"))
            journal.close()
        self.truth.lines = self.written()
        self.truth.write(self._folder)

    def _unseen(self, number: int) -> None:
        """What a broker that is still away has, and will cut."""
        for p in self.cluster.held[number]:
            if p.serving is not None and number in p.logs:
                self.cluster.advance(p, self.now)
                log = p.logs[number]
                same = agree(log, p.logs[p.serving])
                if same < log.end:
                    self.watch.cut(p, self.now, number, log.end, same, seen=False)

    # -- brokers -------------------------------------------------------------------------------------------------------

    def session(self) -> float:
        return self.chance.uniform(6_000, 12_000)

    def kill(self, *numbers: int) -> None:
        """Brokers die at once, and are missed when their sessions end."""
        for number in numbers:
            self._dead[number] = (self.now, False)
            self.brokers.dies(self.brokers[number], self.now)
        ends = sorted((self.session(), number) for number in numbers)
        passed = 0.0
        for after, number in ends:
            self.wait(max(0.0, after - passed))
            passed = after
            self.missed(number)

    def missed(self, number: int) -> None:
        """A session has ended; if it was the controller's, another one takes over and finds it gone."""
        if number == self.control.now:
            self.until(self.control.take_over(self.now, self.chance.choice(self.brokers.alive())))
        else:
            self.until(self.control.failed(self.now, number))

    def stop(self, number: int) -> None:
        """A broker asks to go, and goes."""
        self.until(self.control.stop(self.now, number))
        self.wait(800)
        self._dead[number] = (self.now, True)
        self.brokers.dies(self.brokers[number], self.now, planned=True)
        self.wait(self.chance.uniform(20, 200))
        self.missed(number)

    def back(self, number: int, after: float = 0.0) -> None:
        """A broker comes back, and its replicas come back into the ISRs."""
        self.wait(after)
        died, planned = self._dead.pop(number)
        self.brokers.starts(self.brokers[number], self.now)
        self.truth.absences.append((number, died, self.now, planned))
        self.wait(self.chance.uniform(300, 900))
        self.until(self.control.started(self.now, number))
        self.wait(self.chance.uniform(1_000, 4_000))
        self.recover(self.cluster.held[number])

    def recover(self, partitions: Iterable[Partition]) -> None:
        """Whoever has caught up is taken into the ISR by its leader."""
        grown = []
        at = self.now
        for p in partitions:
            for broker in p.replicas:
                ready = p.serving == p.leader and broker in p.fetching and broker not in p.slow
                if ready and broker not in p.isr and not p.topic.deleting:
                    at = max(at + 0.1, self.control.proposed(at, p, (*p.isr, broker)) - 1.9)
                    grown.append(p)
        self.until(at + 10)
        if grown:
            self.until(self.control.propagate(self.now, dict.fromkeys(grown)))
        self.wait(500)

    def fall_behind(self, p: Partition, followers: Sequence[int]) -> bool:
        """Followers copy nothing any more, and fall out of the ISR; false if the leader cannot say so."""
        if p.serving is None or p.serving != p.leader or p.serving in followers:
            return False
        self.cluster.advance(p, self.now)
        p.slow.update(followers)
        self.wait(self.chance.uniform(2_000, 6_000))
        isr = tuple(broker for broker in p.isr if broker not in followers)
        if len(isr) < len(p.isr):
            self.until(self.control.proposed(self.now, p, isr))
            self.until(self.control.propagate(self.now, [p]))
        self.wait(self.chance.uniform(1_000, 3_000))
        return True

    def catch_up(self, p: Partition) -> None:
        """And copy again."""
        p.slow.clear()
        self.wait(self.chance.uniform(500, 2_000))
        self.recover([p])

    # -- topics --------------------------------------------------------------------------------------------------------

    def topic(self, name: str, partitions: int, *, unclean: bool = False) -> Topic:
        """A new topic, its replicas on brokers drawn by chance; nobody has been told of it."""
        life = self._lives.get(name, -1) + 1
        self._lives[name] = life
        id = base64.urlsafe_b64encode(self.chance.randbytes(16))[:22].decode()
        topic = Topic(name, id=id, life=life, unclean=unclean)
        every = list(self.brokers.by_id)
        assigned = [tuple(self.chance.sample(every, min(REPLICAS, len(every)))) for _ in range(partitions)]
        self.cluster.add(topic, assigned, self.settings.rate / 1000)
        for p in topic.partitions:
            p.advanced_at = self.now
        return topic

    def partitions(self, *, unclean: bool | None = None) -> list[Partition]:
        """Those that serve and have all their replicas in sync."""
        return [
            p
            for topic in self.cluster.topics.values()
            for p in topic.partitions
            if (unclean is None or topic.unclean is unclean) and p.serving == p.leader and len(p.isr) == len(p.replicas)
        ]
