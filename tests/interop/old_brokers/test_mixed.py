"""Brokers of three versions in one cluster, rolled to the newest binaries, and then to the newest protocol level."""

from collections.abc import Iterator

import pytest

from tests.support.jars import class_path

from ..kactl_process import KactlController
from ..traffic import Traffic
from .bench import LATEST, MARGIN_S, OldBench, level_of, until

pytestmark = [pytest.mark.slow, pytest.mark.old]
MIXED = ("2.8.2", "3.4.1", LATEST)


@pytest.fixture
def mixed(jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OldBench]:
    with OldBench(tmp_path_factory.mktemp("mixed"), level_of(MIXED[0]), MIXED) as bench:
        bench.start_other()
        yield bench


def test_three_versions_are_rolled_to_the_newest_binaries_and_level(mixed: OldBench) -> None:
    mixed.create_topic("traffic", 6)
    mixed.create_topic("orders", 12)
    with Traffic(mixed.cluster.bootstrap, "traffic") as traffic:
        traffic.wait_acknowledged(100, timeout_s=MARGIN_S)
        live(mixed, traffic, "mixed")
        for broker in mixed.cluster.brokers:
            mixed.fail(broker)
            broker.start()
            mixed.settle()
        roll_binaries(mixed, traffic)
        live(mixed, traffic, "rolled")
        roll_levels(mixed, traffic)
        live(mixed, traffic, "raised")
        traffic.finish(timeout_s=MARGIN_S)

    assert traffic.errors == []
    for instance in (mixed.kactl, mixed.other):
        assert "Traceback" not in instance.log


def live(bench: OldBench, traffic: Traffic, topic: str) -> None:
    """Create a topic, let it grow, move its replicas, and delete it."""
    bench.create_topic(topic, 3)
    bench.add_partitions(topic, 4)
    targets = [[2, 3], [3, 1], [1, 2], [2, 1]]
    partitions = [{"topic": topic, "partition": index, "replicas": ids} for index, ids in enumerate(targets)]
    bench.active.post("/v1/reassignments", partitions=partitions)
    until(
        lambda: all(bench.reader.assignments()[f"{topic}-{n}"] == tuple(to) for n, to in enumerate(targets)),
        "the moves", MARGIN_S,
    )  # fmt: skip
    bench.settle()
    bench.delete_topic(topic)
    traffic.wait_acknowledged(100, timeout_s=MARGIN_S)


def roll_binaries(bench: OldBench, traffic: Traffic) -> None:
    for broker in bench.cluster.brokers:
        bench.stop(broker)
        broker.jars, bench.versions[broker.id] = class_path(), LATEST
        broker.start()
        bench.settle()
        traffic.wait_acknowledged(100, timeout_s=MARGIN_S)


def roll_levels(bench: OldBench, traffic: Traffic) -> None:
    """Raise the level of each broker, then that of each instance of kactl, as docs/operating.md describes it."""
    for broker in bench.cluster.brokers:
        bench.stop(broker)
        broker.ibp = level_of(LATEST)
        broker.start()
        bench.settle()
        traffic.wait_acknowledged(100, timeout_s=MARGIN_S)
    bench.kactl.stop()
    until(lambda: bench.other.active, "the other instance to act at the old level", MARGIN_S)
    bench.settle()
    start_raised(bench.kactl)
    bench.other.stop()
    until(lambda: bench.kactl.active, "the instance with the new level to act", MARGIN_S)
    bench.settle()
    start_raised(bench.other)


def start_raised(instance: KactlController) -> None:
    instance.level = level_of(LATEST)
    instance.configure(takeover=False, sticky=True)
    instance.start(active=False)
