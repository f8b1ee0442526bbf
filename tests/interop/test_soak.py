"""A short soak test with a fixed seed (`make soak` runs longer), and tests of the soak's own checks."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.processes import HarnessError

from .acceptance.bench import Bench, until
from .faults import Faults
from .journal import Kind, Written
from .soak import soak, unclean
from .watch import LeaderWatch
from .zookeeper_reader import State

SEED = 7
# Long enough for two or three faults.
SECONDS = 25.0


def test_no_record_is_lost_while_servers_fail_and_return(jars: str, tmp_path: Path) -> None:
    messages: list[str] = []
    with Bench(tmp_path, "3.9") as bench:
        wrong = soak(bench, seed=SEED, seconds=SECONDS, say=messages.append)

    print(*messages, sep="\n")
    assert wrong == []


def test_same_seed_generates_the_same_faults(tmp_path: Path) -> None:
    class Process:
        def pause(self) -> None: ...
        def resume(self) -> None: ...

    bench = Bench(tmp_path, "3.9")
    bench.kactl.process = Process()  # type: ignore[assignment]

    def drawn(seed: int) -> list[tuple[str, float]]:
        faults = Faults(bench, Random(seed))
        return [(fault.what, fault.hold_s) for _ in range(50) for fault in faults.draw()]

    assert drawn(1) == drawn(1) != drawn(2)
    assert {description.split(":")[0] for description, _ in drawn(1)} == {
        "broker 1",
        "broker 2",
        "broker 3",
        "kactl",
        "ZooKeeper",
    }


class Led:
    """Stub of ZooKeeper that returns leaders."""

    def __init__(self) -> None:
        self.leader = 1
        self.fails = False

    def states(self) -> dict[str, State]:
        if self.fails:
            raise OSError("away")
        return {"orders-0": State(self.leader, 0, (1, 2), 1)}

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def test_watch_detects_missing_leaders_and_its_own_failure() -> None:
    led = Led()
    running = {1, 2}
    with LeaderWatch(led, lambda: set(running)) as watch:  # type: ignore[arg-type]
        until(lambda: watch.looks > 1, "two looks", 10)
        before = watch.seen()
        running.remove(1)
        until(lambda: watch.seen()[0] > 0.2, "a leaderless partition", 10)
        led.leader = 2
        looks = watch.looks
        until(lambda: watch.looks > looks + 1, "two looks", 10)
        watch.reset()
        until(lambda: watch.looks > looks + 3, "two more", 10)
        after = watch.seen()
        led.leader = -1
        until(lambda: "orders-0" in watch.seen()[1], "no leader at all", 10)
        led.fails = True

        with pytest.raises(HarnessError, match="away"):
            until(lambda: watch.seen()[0] < 0, "the end", 10)

    assert before == after == (0.0, {})


@pytest.mark.parametrize(
    ("before", "after", "wrong"),
    [
        ({"leader": 1, "isr": [1, 2]}, {"leader": 2, "isr": [2], "leader_epoch": 1}, 0),
        ({"leader": 1, "isr": [1, 2]}, {"leader": -1, "isr": [1], "leader_epoch": 1}, 0),
        ({"leader": -1, "isr": [1]}, {"leader": 1, "isr": [1], "leader_epoch": 1}, 0),
        ({"leader": 1, "isr": [1, 2]}, {"leader": 3, "isr": [3], "leader_epoch": 1}, 1),
        ({"leader": -1, "isr": [1]}, {"leader": 2, "isr": [2], "leader_epoch": 1}, 1),
        ({"leader": 1, "isr": [1], "leader_epoch": 5}, {"leader": 1, "isr": [1], "leader_epoch": 4}, 1),
        ({"leader": 1, "isr": [1], "controller_epoch": 5}, {"leader": 1, "isr": [1], "controller_epoch": 4}, 1),
    ],
)
def test_leader_outside_the_isr_is_detected(before: dict[str, Any], after: dict[str, Any], wrong: int) -> None:
    path = "/brokers/topics/orders/partitions/0/state"
    states = [{"leader_epoch": 0, "controller_epoch": 1} | state for state in (before, after)]
    journal = [
        Written(number, 0, 0, kind, path, json.dumps(state).encode())
        for number, (kind, state) in enumerate(zip((Kind.CREATE, Kind.SET), states, strict=True))
    ]

    assert len(unclean(journal)) == wrong
