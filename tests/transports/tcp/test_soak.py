"""A short soak test of participants with a fixed seed (`make soak-participants` is longer), and tests of the checks."""

from pathlib import Path
from random import Random

import pytest

from tests.support.etcd_server import require_etcd
from tests.support.leaderships import Led

from .soak import Faults, falling, grown, soak, tracebacks
from .soak_cluster import Resources, SoakCluster

SEED = 3942
ROUNDS = 3
SESSION_MS = 3_000


@pytest.mark.slow
@pytest.mark.interop
def test_leaderships_are_disjoint_while_processes_fail_and_return(tmp_path: Path) -> None:
    require_etcd()
    lines: list[str] = []
    try:
        with SoakCluster(tmp_path, session_ms=SESSION_MS) as cluster:
            wrong = soak(cluster, seed=SEED, rounds=ROUNDS, session_ms=SESSION_MS, say=lines.append)
    finally:
        print(*lines, sep="\n")

    assert wrong == []


def test_same_seed_generates_the_same_faults(tmp_path: Path) -> None:
    class Proxy:
        address = "127.0.0.1:1"

        def tell(self, command: str) -> None: ...

    cluster = SoakCluster(tmp_path, session_ms=SESSION_MS)
    cluster.to_controllers = {broker: [Proxy()] for broker in (1, 2, 3)}  # type: ignore[list-item]
    cluster.to_store = dict.fromkeys(["participant 1", "controller 100", "controller 101"], Proxy())  # type: ignore[arg-type]

    def drawn(seed: int) -> list[tuple[str, float]]:
        faults = Faults(cluster, Random(seed), session_ms=SESSION_MS)
        return [(fault.what, fault.hold_s) for _ in range(300) for fault in faults.draw()]

    assert drawn(1) == drawn(1) != drawn(2)
    kinds = {what for what, _ in drawn(1)}
    assert {what.split(":")[0] for what in kinds} == {
        *("participant 1", "participant 2", "participant 3"),
        *("controller 100", "controller 101", "store"),
    }
    assert {"participant 3: kill", "participant 3: stop and kill", "controller 100: kill"}.isdisjoint(kinds)


def led(broker: int, token: str, began_ms: float) -> Led:
    return Led(broker, "orders-0", token, began_ms, began_ms + 1, began_ms + 1)


def test_token_that_does_not_rise_is_detected() -> None:
    first, resumed, later = led(1, "1.4", 0), led(1, "1.4", 10), led(2, "1.5", 20)

    assert falling([later, first, resumed]) == []
    assert falling([first, led(2, "1.4", 10)])
    assert falling([led(1, "1.10", 0), led(2, "1.9", 10)])
    assert falling([first, led(1, "1.3", 10)])


def test_process_that_uses_more_is_detected() -> None:
    first = {"participant 3": Resources(40, 10, 60_000), "active controller 100": Resources(17, 14, 70_000)}

    assert grown(first, {"participant 3": Resources(42, 12, 70_000), "active controller 101": first["participant 3"]})
    assert grown(first, {"participant 3": Resources(42, 12, 70_000)}) == []
    for used in (Resources(50, 10, 60_000), Resources(40, 30, 60_000), Resources(40, 10, 100_000)):
        assert len(grown(first, {"participant 3": used})) == 1


def test_traceback_is_detected(tmp_path: Path) -> None:
    (tmp_path / "001-controller-100").write_text("listens\n")
    assert tracebacks(tmp_path) == []

    (tmp_path / "002-participant-1").write_text("Traceback (most recent call last):\n")
    assert len(tracebacks(tmp_path)) == 1
