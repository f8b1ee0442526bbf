"""What a cluster does in its life, by brokers of each version at their own protocol level. The tests run in order; a
producer and a consumer run all the time.
"""

import pytest

from ..traffic import Traffic
from .bench import KACTL, MARGIN_S, OTHER, OldBench, until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("traffic")]


def test_topics_are_created_by_a_client_and_by_the_tool_of_the_version(bench: OldBench, traffic: Traffic) -> None:
    bench.create_topic("orders", 30)
    created = bench.tool("topics", "--create", "--topic", "moved", "--partitions", "3", "--replication-factor", "2")

    bench.settle()
    traffic.wait_acknowledged(100, timeout_s=MARGIN_S)
    assert "Created topic moved." in created.text


def test_killed_broker_is_replaced_and_returns(bench: OldBench, traffic: Traffic) -> None:
    bench.fail(bench.cluster[2])
    traffic.wait_acknowledged(100, timeout_s=MARGIN_S)

    bench.cluster[2].start()

    bench.settle()


def test_rolling_restart_in_order_ends_whole(bench: OldBench, traffic: Traffic) -> None:
    """Leaders propose a follower that is about to stop; its partitions must not stay without it."""
    for broker in bench.cluster.brokers:
        bench.stop(broker)
        broker.start()
        bench.settle()

    traffic.wait_acknowledged(100, timeout_s=MARGIN_S)


def test_drained_broker_is_not_proposed_and_returns_into_every_isr(bench: OldBench, traffic: Traffic) -> None:
    before = rejections(bench)

    bench.active.post("/v1/brokers/3/drain", undo=False, dry_run=False, reason="test")
    until(lambda: bench.led(without=[3]) and bench.shrunk(without=3), "the drain", MARGIN_S)
    # Followers fetch twice a second; a leader would propose broker 3 after each of its fetches.
    traffic.wait_acknowledged(1_000, timeout_s=MARGIN_S)
    # Below level 2.7 leaders write ISRs themselves, so the last fetches may have taken it back for some seconds.
    until(lambda: bench.shrunk(without=3), "broker 3 out of all ISRs", MARGIN_S)
    bench.active.post("/v1/brokers/3/drain", undo=True, dry_run=False, reason="test")

    bench.settle()
    # At most the proposals of fetches that were on their way.
    assert rejections(bench) - before <= 3


def rejections(bench: OldBench) -> int:
    """Return how many lines about rejected proposals the active instance has written: one for each partition."""
    return bench.active.log.count("are rejected")


def test_preferred_replicas_lead_on_request(bench: OldBench) -> None:
    bench.tool("elect", "--election-type", "preferred", "--all-topic-partitions")

    replicas = bench.reader.assignments()
    until(
        lambda: all(state.leader == replicas[name][0] for name, state in bench.reader.states().items()),
        "preferred leaders", MARGIN_S,
    )  # fmt: skip
    until(bench.agree, "all brokers to know all leaders", MARGIN_S)


def test_replicas_move_by_the_tool_of_the_version(bench: OldBench) -> None:
    targets = [(3, 1), (1, 2), (2, 3)]

    started = bench.tool("reassign", "--reassignment-json-file", bench.plan("moved", *targets), "--execute")

    until(lambda: all(bench.reader.assignments()[f"moved-{n}"] == to for n, to in enumerate(targets)), "it", MARGIN_S)
    bench.settle()
    assert "uccessfully started" in started.text


def test_topic_grows_and_is_deleted_and_created_again(bench: OldBench) -> None:
    bench.add_partitions("moved", 6)
    assert len(bench.reader.states_of("moved")) == 6

    bench.delete_topic("moved")
    bench.create_topic("moved", 2)

    assert len(bench.reader.states_of("moved")) == 2


def test_other_instance_takes_over_and_serves(bench: OldBench, traffic: Traffic) -> None:
    bench.change_instance()

    bench.create_topic("later", 3)
    bench.fail(bench.cluster[1])
    bench.cluster[1].start()
    bench.settle()
    traffic.wait_acknowledged(100, timeout_s=MARGIN_S)


def test_controllership_passes_to_a_broker_and_back(bench: OldBench, traffic: Traffic) -> None:
    for instance in (bench.kactl, bench.other):
        instance.stop()
        instance.configure(takeover=instance is bench.kactl)
    bench.kactl.start()  # without `sticky`
    bench.kactl.stop()
    until(lambda: bench.reader.holder()[0] in bench.versions, "a broker as controller", MARGIN_S)
    bench.create_topic("theirs", 3)
    bench.delete_topic("later")
    traffic.wait_acknowledged(100, timeout_s=MARGIN_S)
    logs = "".join(broker.log for broker in bench.cluster.brokers).splitlines()
    seen = [line for line in logs if "Currently active brokers in the cluster" in line]

    bench.kactl.start()

    assert seen
    assert not any(str(KACTL) in line or str(OTHER) in line for line in seen), "no controller took kactl for a broker"
    assert bench.reader.holder()[0] in (KACTL, OTHER)
    bench.delete_topic("theirs")
    bench.create_topic("ours", 3)
    traffic.wait_acknowledged(100, timeout_s=MARGIN_S)


def test_all_acknowledged_records_are_read(bench: OldBench, traffic: Traffic) -> None:
    traffic.finish(timeout_s=MARGIN_S)

    assert traffic.errors == []
    for instance in (bench.kactl, bench.other):
        assert "Traceback" not in instance.log
