"""Invariants of everything that was written to ZooKeeper during the other tests."""

import json

import pytest

from ..journal import Kind
from .bench import KACTL, OTHER, Bench, as_json, partition_of, topic_of


@pytest.mark.checklist(4)
def test_no_partition_with_state_is_assigned_to_kactl(bench: Bench) -> None:
    """Brokers that create topics automatically take kactl for a broker."""
    assigned: dict[str, list[int]] = {}
    begun: set[str] = set()
    misplaced: list[tuple[int, str]] = []
    rewritten: set[str] = set()
    for write in bench.journal():
        topic, partition = topic_of(write.path), partition_of(write.path)
        if write.kind is Kind.DELETE:
            assigned = {name: replicas for name, replicas in assigned.items() if name.rpartition("-")[0] != topic}
            begun.discard(partition or "")
        elif topic is not None:
            written = {f"{topic}-{number}": replicas for number, replicas in as_json(write)["partitions"].items()}
            rewritten |= {name for name in written if on_kactl(assigned.get(name)) and not on_kactl(written[name])}
            assigned |= written
        elif partition is not None:
            begun.add(partition)
        misplaced += [(write.zxid, name) for name in begun if on_kactl(assigned.get(name))]

    assert misplaced == []
    # At the first offset commit a broker spread the offsets topic over all brokers it saw.
    assert any(name.startswith("__consumer_offsets-") for name in rewritten)


def on_kactl(replicas: list[int] | None) -> bool:
    return replicas is not None and not {KACTL, OTHER}.isdisjoint(replicas)


@pytest.mark.checklist(16)
def test_features_stay_empty_and_producer_id_blocks_stay_unique(bench: Bench) -> None:
    features = [
        as_json(write) for write in bench.journal() if write.path == "/feature" and write.kind is not Kind.DELETE
    ]
    blocks = [write.data for write in bench.journal() if write.path == "/latest_producer_id_block"]

    assert features
    assert all(content["features"] == {} for content in features)
    assert bench.reader.json("/feature")["features"] == {}
    first, *later = blocks
    assert first != b""  # an initial node without data is allowed
    ends = [int(json.loads(block or b"null")["block_end"]) for block in later]
    assert ends
    assert ends == sorted(set(ends))  # no id is allocated twice


@pytest.mark.parametrize("field", ["leader_epoch", "controller_epoch"])
def test_epochs_never_decrease(bench: Bench, field: str) -> None:
    latest: dict[str, int] = {}
    steps_back = []
    for write in bench.journal():
        partition = partition_of(write.path)
        if partition is None:
            continue
        if write.kind is Kind.DELETE:
            latest.pop(partition, None)
            continue
        epoch = as_json(write)[field]
        if epoch < latest.get(partition, 0):
            steps_back.append(write)
        latest[partition] = epoch

    assert latest
    assert steps_back == []


def test_every_controller_has_a_higher_epoch(bench: Bench) -> None:
    epochs = [int(as_json(write)) for write in bench.journal() if write.path == "/controller_epoch"]

    assert epochs == sorted(set(epochs))
    assert len(epochs) > 5


def test_kactl_has_no_unexpected_errors(bench: Bench) -> None:
    for instance in (bench.kactl, bench.other):
        for log in instance.folder.glob("*.log"):
            text = log.read_text(errors="replace")
            assert "Traceback" not in text
