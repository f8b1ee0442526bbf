"""Soak test of participants: minutes of faults for three of them, two controllers and a store, in processes.

Run it with `make soak-participants`, or `python -m tests.transports.tcp.soak`. It needs etcd.

A seeded script kills and stops processes, breaks and silences their connections in one direction or both, and stops and
restarts the store. After each round all partitions must be led and all replicas in sync again. At the end no partition
was led by two participants at a time, tokens rose, the processes that ran all the time use as many tasks and
descriptors as at the beginning and hardly more memory, and all programs end without tasks that are left.

    SOAK_SEED       repeats the faults of a seed; random if not set
    SOAK_MINUTES    duration of the faults, 60 if not set
"""

import itertools
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import Final, NamedTuple

from tests.support.leaderships import Led
from tests.support.processes import HarnessError

from .cluster_program import now_ms
from .process_cluster import CONTROLLERS, PATIENCE_S
from .soak_cluster import SESSIONS, Resources, SoakCluster, ThreadProxy, controller_name, participant_name, tell

MINUTES: Final = 60.0
SESSION_MS: Final = 6_000
# Durations of faults, in sessions: clearly shorter, and clearly longer.
SHORT: Final = (0.1, 0.6)
LONG: Final = (1.2, 2.2)
# Commands of the proxies. A slow link still carries heartbeats.
CUTS: Final = {
    "cut off": "refuse",
    "silent": "freeze",
    "sends nothing": "freeze up",
    "receives nothing": "freeze down",
    "slow": "throttle 20000",
    "broken": "cut",
}
PARTICIPANT_FAULTS: Final = ("kill", "stop", "stop and kill", *CUTS)
CONTROLLER_FAULTS: Final = ("kill", "stop", *CUTS)
STORE_FAULTS: Final = ("kill", "stop")
KILLED_PARTICIPANTS: Final = (1, 2)
KILLED_CONTROLLERS: Final = (101,)
# Weights, and what fails together.
PATTERNS: Final = (
    (6, ("participant",)),
    (4, ("controller",)),
    (2, ("store",)),
    (3, ("participant", "controller")),
    (1, ("participant", "participant")),
    (1, ("participant", "store")),
    (1, ("controller", "store")),
    (1, ("participant", "controller", "store")),
)
# Tasks of timers and idle connections to the store that a process may have, or not.
SPARE_TASKS: Final = 3
# How often the use of the processes is measured at the end, while it is more than at the beginning.
RESTS_MAX: Final = 10
SPARE_DESCRIPTORS: Final = 8
# A process grows with the faults that it has seen for the first time; one that grows with each fault gets beyond this.
GROWTH_KIB: Final = 24 * 1024
# Rounds between two measurements.
MEASURED: Final = 20

Say = Callable[[str], None]


class Fault(NamedTuple):
    """A fault of a round.

    Attributes:
        what: description, such as "participant 2: kill".
        hold_s: for how long it lasts.
    """

    what: str
    strike: Callable[[], None]
    heal: Callable[[], None]
    hold_s: float


class Faults:
    """Random generator of faults.

    Args:
        random: seeded; the same seed generates the same faults.
    """

    def __init__(self, cluster: SoakCluster, random: Random, *, session_ms: int) -> None:
        self._soak = cluster
        self._random = random
        self._session_s = session_ms / 1000

    def draw(self) -> list[Fault]:
        """Returns the faults of one round, in the order in which they strike. They end in the opposite one."""
        weights = [weight for weight, _ in PATTERNS]
        ((_, struck),) = self._random.choices(PATTERNS, weights)
        brokers = self._random.sample(list(SESSIONS), struck.count("participant"))
        return [
            *map(self._participant, brokers),
            *(self._controller() for kind in struck if kind == "controller"),
            *(self._store() for kind in struck if kind == "store"),
        ]

    def _participant(self, broker: int) -> Fault:
        kinds = [kind for kind in PARTICIPANT_FAULTS if "kill" not in kind or broker in KILLED_PARTICIPANTS]
        kind = self._random.choice(kinds)
        hold_s = self._hold_s()
        name = f"{participant_name(broker)}: {kind}"
        soak, cluster = self._soak, self._soak.cluster
        match kind:
            case "kill":
                return Fault(name, lambda: cluster.kill(broker), lambda: soak.start_participant(broker), hold_s)
            case "stop":
                return Fault(
                    name,
                    lambda: cluster.participants[broker].pause(),
                    lambda: cluster.participants[broker].resume(),
                    hold_s,
                )
            case "stop and kill":
                return Fault(name, lambda: self._pause(broker), lambda: self._replace(broker), hold_s)
        return Fault(name, *_cut(CUTS[kind], soak.proxies_of(broker)), hold_s)

    def _pause(self, broker: int) -> None:
        self._soak.cluster.participants[broker].pause()
        self._soak.cluster.run_of(broker).ended_ms = now_ms()

    def _replace(self, broker: int) -> None:
        self._soak.cluster.participants[broker].kill()
        self._soak.start_participant(broker)

    def _controller(self) -> Fault:
        node = self._random.choice(CONTROLLERS)
        kind = self._random.choice([kind for kind in CONTROLLER_FAULTS if kind != "kill" or node in KILLED_CONTROLLERS])
        hold_s = self._hold_s()
        name = f"{controller_name(node)}: {kind}"
        soak, cluster = self._soak, self._soak.cluster
        match kind:
            case "kill":
                return Fault(
                    name, lambda: cluster.controllers[node].kill(), lambda: soak.start_controller(node), hold_s
                )
            case "stop":
                return Fault(
                    name,
                    lambda: cluster.controllers[node].pause(),
                    lambda: cluster.controllers[node].resume(),
                    hold_s,
                )
        return Fault(name, *_cut(CUTS[kind], [soak.to_store[controller_name(node)]]), hold_s)

    def _store(self) -> Fault:
        kind = self._random.choice(STORE_FAULTS)
        hold_s = self._hold_s()
        etcd = self._soak.etcd
        if kind == "kill":
            return Fault("store: kill", etcd.kill, etcd.start, hold_s)
        return Fault("store: stop", etcd.pause, etcd.resume, hold_s)

    def _hold_s(self) -> float:
        return self._random.uniform(*self._random.choice((SHORT, LONG))) * self._session_s


def _cut(command: str, proxies: list[ThreadProxy]) -> tuple[Callable[[], None], Callable[[], None]]:
    return partial(tell, proxies, command), partial(tell, proxies, "heal")


def soak(
    cluster: SoakCluster, *, seed: int, seconds: float = 0, rounds: int = 1, session_ms: int, say: Say
) -> list[str]:
    """Run faults for that long, and for so many rounds. Returns the violations.

    Raises:
        HarnessError: the cluster did not recover from a fault.
    """
    faults = Faults(cluster, Random(seed), session_ms=session_ms)
    first = cluster.at_rest()
    say(f"at the beginning: {_listed(first)}")
    began = time.monotonic()
    number = 0
    while number < rounds or time.monotonic() < began + seconds:
        number += 1
        _round(cluster, faults.draw(), partial(_say_of, number, say))
        if number % MEASURED == 0:
            say(f"after {(time.monotonic() - began) / 60:.0f} min: {_listed(cluster.at_rest())}")
    # Links that were cut end within their time limits; what has leaked stays.
    last = next((used for used in (cluster.at_rest() for _ in range(RESTS_MAX)) if not grown(first, used)), None)
    last = last or cluster.at_rest()
    say(f"at the end: {_listed(last)}")
    led = cluster.cluster.led()
    for line in _summary(number, led, sum(len(cluster.cluster.lost(broker)) for broker in SESSIONS)):
        say(line)
    return [
        *(f"{earlier} had not ended before {later} began" for earlier, later in cluster.cluster.overlaps()),
        *falling(led),
        *grown(first, last),
        *tracebacks(cluster.cluster.folder),
        *_end(cluster),
    ]


def _round(cluster: SoakCluster, faults: list[Fault], say: Say) -> None:
    """Strike, hold and heal the faults, and wait for the recovery."""
    began = time.monotonic()
    for fault in faults:
        fault.strike()
    time.sleep(max(fault.hold_s for fault in faults))
    for fault in reversed(faults):
        fault.heal()
    held_s = time.monotonic() - began
    rest_s = cluster.wait_until_whole()
    say(f"{' + '.join(fault.what for fault in faults)}; for {held_s:.1f} s; whole {rest_s:.1f} s later")


def _say_of(number: int, say: Say, text: str) -> None:
    say(f"round {number}: {text}")


def _end(cluster: SoakCluster) -> list[str]:
    """End all programs in order. Returns those that did not, or left tasks."""
    wrong = []
    for name, process in cluster.processes.items():
        process.signal(signal.SIGTERM)
        code = process.wait(PATIENCE_S)
        if code != 0 or process.text.splitlines()[-1] != "left 0":
            wrong.append(f"{name} ended with {code}: {process.text.splitlines()[-1]}")
    return wrong


# -- checks ------------------------------------------------------------------------------------------------------------


def falling(led: Iterable[Led]) -> list[str]:
    """Returns leaderships whose token is not above that of the one before, unless that one was resumed."""
    wrong = []
    last: dict[str, Led] = {}
    for later in sorted(led, key=lambda led: led.began_ms):
        earlier = last.setdefault(later.name, later)
        if (_token(later), later.broker) != (_token(earlier), earlier.broker) and _token(later) <= _token(earlier):
            wrong.append(f"the token of {later} is not above that of {earlier}")
        last[later.name] = later
    return wrong


def _token(led: Led) -> tuple[int, ...]:
    return tuple(map(int, led.token.split(".")))


def grown(first: dict[str, Resources], last: dict[str, Resources]) -> list[str]:
    """Returns processes that use more than such a process at the beginning. Controllers are compared by their role."""
    wrong = []
    before = {_kind(name): used for name, used in first.items()}
    for name, used in last.items():
        reference = before[_kind(name)]
        if used.tasks > reference.tasks + SPARE_TASKS:
            wrong.append(f"{name} has {used.tasks} tasks, at the beginning {reference.tasks}")
        if used.descriptors > reference.descriptors + SPARE_DESCRIPTORS:
            wrong.append(f"{name} has {used.descriptors} descriptors, at the beginning {reference.descriptors}")
        if used.kib > reference.kib + GROWTH_KIB:
            wrong.append(f"{name} uses {used.kib} KiB, at the beginning {reference.kib}")
    return wrong


def _kind(name: str) -> str:
    """Returns the name of a participant, or the role of a controller."""
    return name if name.startswith("participant") else name.split()[0]


def tracebacks(folder: Path) -> list[str]:
    """Returns outputs with a traceback."""
    return [f"{path} has a traceback" for path in sorted(folder.glob("*-*-*")) if "Traceback" in path.read_text()]


def _listed(measured: dict[str, Resources]) -> str:
    return "; ".join(
        f"{name} {used.tasks} tasks, {used.descriptors} descriptors, {used.kib / 1024:.0f} MiB"
        for name, used in sorted(measured.items())
    )


def _summary(rounds: int, led: list[Led], lost: int) -> list[str]:
    """Returns lines with the numbers of a run."""
    gaps_ms: list[float] = []
    moved = resumed = 0
    for _, times in itertools.groupby(sorted(led, key=lambda led: (led.name, led.began_ms)), lambda led: led.name):
        for earlier, later in itertools.pairwise(times):
            resumed += earlier.token == later.token
            if earlier.broker != later.broker:
                moved += 1
                gaps_ms.append(later.began_ms - earlier.ended_ms)
    between = f"at least {min(gaps_ms):.1f} ms, at most {max(gaps_ms) / 1000:.1f} s" if gaps_ms else "nothing"
    return [
        f"{rounds} rounds; {len(led)} leaderships, {moved} moves to another participant, {lost} lapses, "
        f"{resumed} resumed with the same token",
        f"between the end of one leader and the begin of another one: {between}",
    ]


def main() -> int:
    """Run as configured by the environment. Returns 0 if there was no violation."""
    if shutil.which("etcd") is None:
        print("soak: there is no etcd: install Debian's etcd-server, or put etcd on PATH")
        return 1
    seed = int(os.environ.get("SOAK_SEED") or SystemRandom().randrange(1_000_000))
    minutes = float(os.environ.get("SOAK_MINUTES") or MINUTES)
    folder = Path(tempfile.mkdtemp(prefix="kactl-soak-"))
    print(f"soak: SOAK_SEED={seed} SOAK_MINUTES={minutes:g}", flush=True)

    def say(text: str) -> None:
        print(f"soak: {text}", flush=True)

    try:
        with SoakCluster(folder, session_ms=SESSION_MS) as cluster:
            wrong = soak(cluster, seed=seed, seconds=minutes * 60, session_ms=SESSION_MS, say=say)
    except (HarnessError, AssertionError, OSError):
        wrong = [traceback.format_exc()]
    for violation in wrong:
        print(f"soak: WRONG: {violation}")
    if wrong:
        print(f"soak: FAILED with SOAK_SEED={seed}; the output of the programs is in {folder}")
        return 1
    shutil.rmtree(folder)
    print(f"soak: passed with SOAK_SEED={seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
