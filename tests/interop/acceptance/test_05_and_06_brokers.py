"""Broker failure, controlled shutdown, and the return of leaders to their preferred replicas."""

import time

import pytest

from ..journal import Kind
from ..traffic import Traffic
from .bench import MARGIN_S, SESSION_S, Bench, as_json, partition_of, until
from .watcher import MetadataWatcher


@pytest.mark.checklist(5)
def test_killed_leader_is_replaced_without_loss(bench: Bench) -> None:
    with Traffic(bench.cluster.bootstrap, "deliveries", group="readers-5") as traffic:
        traffic.wait_acknowledged(200, timeout_s=MARGIN_S)
        victim = bench.reader.states()["deliveries-0"].leader
        session = max(session for session, broker in bench.sessions_of_brokers().items() if broker == victim)
        before = bench.reader.states()
        led = {name for name, state in before.items() if state.leader == victim}

        killed_ms = time.time() * 1000
        bench.cluster[victim].kill()
        until(lambda: bench.led(without=[victim]), "new leaders", SESSION_S + MARGIN_S)
        until(lambda: bench.shrunk(without=victim), "shrunk ISRs", MARGIN_S)
        traffic.wait_acknowledged(200, timeout_s=MARGIN_S)
        dead = bench.reader.states()

        bench.cluster[victim].start()
        bench.rest()
        traffic.wait_acknowledged(200, timeout_s=MARGIN_S)
        traffic.finish(timeout_s=MARGIN_S)

    since = [write for write in bench.journal() if write.at_ms >= killed_ms]
    (ended,) = [n for n, write in enumerate(since) if write.kind is Kind.END_SESSION and write.session == session]
    ended_ms = since[ended].at_ms
    # The first write of each partition after the end of the session.
    leaders: dict[str, int] = {}
    for write in since[ended:]:
        name = partition_of(write.path)
        if name is not None and name in led and name not in leaders:
            leaders[name], last_ms = as_json(write)["leader"], write.at_ms
    print(
        f"\nlevel {bench.level}: the {len(led)} partitions of broker {victim} had new leaders "
        f"{(last_ms - killed_ms) / 1000:.2f} s after SIGKILL, {last_ms - ended_ms} ms after the end of its session"
    )
    assert leaders.keys() == led
    assert victim not in leaders.values()
    assert all(dead[name].leader_epoch > before[name].leader_epoch for name in led)
    assert traffic.acknowledged <= traffic.read
    assert not traffic.errors


@pytest.mark.checklist(6)
def test_stopped_leader_moves_its_partitions_first(bench: Bench) -> None:
    victim = bench.cluster[bench.reader.states()["orders-0"].leader]
    others = [broker for broker in bench.cluster.brokers if broker is not victim]
    with MetadataWatcher(others) as watcher:
        before = len(watcher.answers)
        victim.stop()
        # Two more broker rounds, so that every broker has received the end of this one.
        seen = len(watcher.answers)
        until(lambda: len(watcher.answers) >= seen + 4, "more answers", MARGIN_S)

    states = bench.reader.states()
    assert len(watcher.answers) > before
    assert not watcher.offline
    assert "Controlled shutdown request returned successfully" in victim.log
    assert "unclean shutdown" not in victim.log
    assert all(victim.id not in (state.leader, *state.isr) for state in states.values())
    assert all(state.leader != -1 for state in states.values())
    victim.start()
    bench.rest()


@pytest.mark.checklist(9)
def test_leaders_return_to_a_restarted_broker(bench: Bench) -> None:
    until(bench.balanced, "preferred leaders, by kactl's own doing", MARGIN_S)

    assert bench.reader.data("/admin/preferred_replica_election") is None
    bench.rest()
