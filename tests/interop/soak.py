"""Soak test: minutes of faults in a cluster of real brokers under kactl.

Run it with `make soak`, or `python -m tests.interop.soak`.

A producer writes and a group reads continuously, while a seeded script kills, stops, pauses and disconnects brokers,
both instances of kactl and ZooKeeper. At the end every acknowledged record is at its acknowledged position with its
written value, no partition was without a leader for longer than the faults explain, and every elected leader was in
sync.

    SOAK_SEED       repeats the faults of a seed; random if not set
    SOAK_MINUTES    duration of the faults, 3 if not set
    SOAK_LEVEL      inter.broker.protocol.version, 3.9 if not set
"""

import logging
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import Final

from tests.support.jars import missing
from tests.support.processes import HarnessError

from .acceptance.bench import BROKERS, CHROOT, SESSION_S, TICK_MS, Bench, as_json, partition_of, until
from .faults import Fault, Faults, hold
from .journal import Kind, Written
from .records import PARTITIONS, Records
from .watch import LeaderWatch
from .zookeeper_reader import ZooKeeperReader

TOPIC: Final = "soak"
MINUTES: Final = 3.0
# Time limit of recovery after the last session has ended: everything runs on two cores, and JVMs start.
GRACE_S: Final = 10.0
# From the end of a fault to a cluster with all replicas in sync.
HEALED_S: Final = 120.0

Say = Callable[[str], None]


def soak(bench: Bench, *, seed: int, seconds: float, say: Say) -> list[str]:
    """Run faults for that long. Returns the violations.

    Raises:
        HarnessError: the cluster did not recover from a fault.
    """
    faults = Faults(bench, Random(seed))
    wrong: list[str] = []
    bench.create(
        TOPIC, "--partitions", str(PARTITIONS), "--replication-factor", "3", "--config", "min.insync.replicas=2",
        partitions=PARTITIONS,
    )  # fmt: skip
    bench.other.start(active=False)
    records = Records(bench.cluster.bootstrap, TOPIC, seed=seed)
    records.start()
    reader = ZooKeeperReader(bench.zookeeper.connect(), CHROOT)
    with LeaderWatch(reader, lambda: {broker.id for broker in bench.cluster.brokers if broker.runs}) as watch:
        until(lambda: len(records.read) > 100, "records that are written and read", HEALED_S)
        ends = time.monotonic() + seconds
        number = 0
        while time.monotonic() < ends:
            number += 1
            wrong += _round(bench, faults.draw(), watch, records, partial(_say_of, number, say))
        looks = watch.looks
    records.stop()
    count = records.check_log()
    say(
        f"{number} rounds; {len(records.acknowledged)} records acknowledged, {len(records.refused)} refused, "
        f"{len(records.read)} read by the group, {count} in the log; leaders looked at {looks} times"
    )
    return wrong + records.wrong + unclean(bench.journal()) + tracebacks(bench)


def _round(bench: Bench, faults: list[Fault], watch: LeaderWatch, records: Records, say: Say) -> list[str]:
    """Strike, hold and heal the faults, and check the recovery."""
    description = " + ".join(fault.what for fault in faults)
    before = len(records.acknowledged)
    watch.reset()
    began = time.monotonic()
    struck = {}
    for fault in faults:
        fault.strike()
        struck[fault] = time.monotonic()
    hold(faults, since=began)
    healed = {}
    for fault in reversed(faults):
        fault.heal()
        healed[fault] = time.monotonic()
    explained = max(_explained(fault, struck[fault], healed[fault]) for fault in faults) + GRACE_S
    rest_s = _rest(bench)
    until(lambda: len(records.acknowledged) > before, "records that are acknowledged", HEALED_S)
    looks = watch.looks
    until(lambda: watch.looks > looks + 1, "another read of the leaders", HEALED_S)
    worst_s, last = watch.seen()
    late = {name: time_s - explained for name, time_s in last.items() if time_s > explained}
    say(
        f"{description}; leaderless for {worst_s:.1f} s at most, {explained - began:.1f} s explained, "
        f"at rest {rest_s:.1f} s after the end of the fault"
    )
    return [f"{description}: {name} was without a leader {late_s:.1f} s too long" for name, late_s in late.items()]


def _say_of(number: int, say: Say, text: str) -> None:
    say(f"round {number}: {text}")


def _explained(fault: Fault, struck: float, healed: float) -> float:
    """Return the time until which the fault alone explains a partition without a leader."""
    session_s = SESSION_S + TICK_MS / 1000
    if fault.whose == "ZooKeeper":
        return healed + session_s  # ZooKeeper may restart the timeouts of dead sessions then
    return min(healed, struck + session_s)


def _rest(bench: Bench) -> float:
    """Make kactl the controller again, and wait until all replicas are in sync. Returns the seconds that it took."""
    began = time.monotonic()
    until(lambda: bench.reader.registered() == set(BROKERS), "all brokers", HEALED_S)
    bench.reinstate()
    until(lambda: bench.ruled() and bench.whole(), "a whole cluster", HEALED_S)
    return time.monotonic() - began


def unclean(journal: list[Written]) -> list[str]:
    """Return elections, in all writes, of leaders outside the ISR, and decreasing epochs."""
    violations = []
    latest: dict[str, dict[str, object]] = {}
    for write in journal:
        name = partition_of(write.path)
        if name is None:
            continue
        if write.kind is Kind.DELETE:
            latest.pop(name, None)
            continue
        state = as_json(write)
        before = latest.get(name, state)
        if state["leader"] not in (-1, before["leader"]) and state["leader"] not in before["isr"]:
            violations.append(f"{name}: {state} after {before}")
        if state["leader_epoch"] < before["leader_epoch"] or state["controller_epoch"] < before["controller_epoch"]:
            violations.append(f"{name} went back: {state} after {before}")
        latest[name] = state
    return violations


def tracebacks(bench: Bench) -> list[str]:
    """Return whether kactl logged a traceback."""
    return [
        f"{log} has a traceback"
        for instance in (bench.kactl, bench.other)
        for log in instance.folder.glob("*.log")
        if "Traceback" in log.read_text(errors="replace")
    ]


def main() -> int:
    """Run as configured by the environment. Returns 0 if there was no violation."""
    if reason := missing():
        print(f"soak: {reason}")
        return 1
    seed = int(os.environ.get("SOAK_SEED") or SystemRandom().randrange(1_000_000))
    minutes = float(os.environ.get("SOAK_MINUTES") or MINUTES)
    level = os.environ.get("SOAK_LEVEL") or "3.9"
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # an unavailable ZooKeeper is expected here
    folder = Path(tempfile.mkdtemp(prefix="kactl-soak-"))
    print(f"soak: SOAK_SEED={seed} SOAK_MINUTES={minutes:g} SOAK_LEVEL={level}", flush=True)
    try:
        with Bench(folder, level) as bench:
            wrong = soak(bench, seed=seed, seconds=minutes * 60, say=lambda text: print(f"soak: {text}", flush=True))
    except (HarnessError, AssertionError, OSError):
        wrong = [traceback.format_exc()]
    for violation in wrong:
        print(f"soak: WRONG: {violation}")
    if wrong:
        print(f"soak: FAILED with SOAK_SEED={seed} SOAK_LEVEL={level}; what the servers said is in {folder}")
        return 1
    shutil.rmtree(folder)
    print(f"soak: passed with SOAK_SEED={seed} SOAK_LEVEL={level}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
