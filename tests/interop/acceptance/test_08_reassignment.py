"""kafka-reassign-partitions: replicas move, with and without a throttle, and return when cancelled."""

import json
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from .bench import MARGIN_S, Bench, until

TOPIC: Final = "moving"
# Hundreds of fetches at full speed; hours under a throttle of a kilobyte a second.
RECORDS: Final = 750
RECORD_SIZE: Final = 8_000


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return tmp_path / "plan.json"


def write_plan(path: Path, **replicas: list[int]) -> None:
    """Write a plan for the partitions p0, p1 and so on of the topic."""
    partitions = [
        {"topic": TOPIC, "partition": int(name[1:]), "replicas": targets} for name, targets in replicas.items()
    ]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))


def write_records(bench: Bench, *, partition: int) -> None:
    producer = Producer({"bootstrap.servers": bench.cluster.bootstrap, "acks": "all", "batch.size": 16_384})
    for _ in range(RECORDS):
        producer.produce(TOPIC, b"x" * RECORD_SIZE, partition=partition)
    assert producer.flush(MARGIN_S) == 0


@pytest.mark.checklist(8)
def test_replica_moves_and_the_throttle_is_removed_at_the_end(bench: Bench, plan: Path) -> None:
    bench.create(TOPIC, "--replica-assignment", "1:2,2:3", partitions=2)
    write_records(bench, partition=0)
    write_plan(plan, p0=[3, 2])

    executed = bench.tools.reassign("--execute", "--reassignment-json-file", str(plan), "--throttle", "50000000").well()
    throttled = bench.reader.json(f"/config/topics/{TOPIC}")["config"]
    until(
        lambda: bench.reader.assignments()[f"{TOPIC}-0"] == (3, 2) and bench.reader.states()[f"{TOPIC}-0"].leader == 3,
        "the move",
        MARGIN_S,
    )
    verified = bench.tools.reassign("--verify", "--reassignment-json-file", str(plan)).well()

    assert f"Successfully started partition reassignment for {TOPIC}-0" in executed.text
    assert "Current partition replica assignment" in executed.text
    assert throttled == {
        "leader.replication.throttled.replicas": "0:1,0:2",
        "follower.replication.throttled.replicas": "0:3",
    }
    assert f"Reassignment of partition {TOPIC}-0 is completed." in verified.text
    assert f"Clearing topic-level throttles on topic {TOPIC}" in verified.text
    assert bench.reader.json(f"/config/topics/{TOPIC}")["config"] == {}
    assert set(bench.reader.states()[f"{TOPIC}-0"].isr) == {2, 3}
    until(lambda: not (bench.cluster[1].folder / "logs" / f"{TOPIC}-0").exists(), "the old folder to vanish", MARGIN_S)


@pytest.mark.checklist(8)
def test_cancelled_move_restores_the_original_state(bench: Bench, plan: Path) -> None:
    write_records(bench, partition=1)
    write_plan(plan, p1=[1, 3])

    bench.tools.reassign("--execute", "--reassignment-json-file", str(plan), "--throttle", "1000").well()
    verified = bench.tools.reassign("--verify", "--reassignment-json-file", str(plan)).well()
    listed = bench.tools.reassign("--list").well()
    during = bench.reader.json(f"/brokers/topics/{TOPIC}")
    cancelled = bench.tools.reassign("--cancel", "--reassignment-json-file", str(plan)).well()
    until(lambda: set(bench.reader.assignments()[f"{TOPIC}-1"]) == {2, 3}, "the old replicas", MARGIN_S)
    after = bench.reader.json(f"/brokers/topics/{TOPIC}")
    nothing = bench.tools.reassign("--list").well()

    assert f"Reassignment of partition {TOPIC}-1 is still in progress." in verified.text
    assert f"{TOPIC}-1: replicas: 1,3,2. adding: 1. removing: 2." in listed.text
    assert during["adding_replicas"] == {"1": [1]}
    assert during["removing_replicas"] == {"1": [2]}
    assert not after.get("adding_replicas")
    assert not after.get("removing_replicas")
    assert f"Successfully cancelled partition reassignment for: {TOPIC}-1" in cancelled.text
    assert "No partition reassignments found." in nothing.text
    assert bench.reader.states()[f"{TOPIC}-1"].leader == 2
    until(lambda: not (bench.cluster[1].folder / "logs" / f"{TOPIC}-1").exists(), "the new folder to vanish", MARGIN_S)
    bench.delete(TOPIC)
    bench.rest()


@pytest.mark.checklist(8)
def test_move_to_an_unknown_broker_is_rejected(bench: Bench, plan: Path) -> None:
    bench.create("staying", "--replica-assignment", "1:2")
    plan.write_text(
        json.dumps(
            {"version": 1, "partitions": [{"topic": "staying", "partition": 0, "replicas": [1, bench.kactl.node_id]}]}
        )
    )

    refused = bench.tools.reassign("--execute", "--reassignment-json-file", str(plan))
    bench.delete("staying")

    assert refused.code == 1
    assert bench.reader.data("/admin/reassign_partitions") is None
    bench.rest()
