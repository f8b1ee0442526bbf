"""What must never have been, in all that was ever written to ZooKeeper while everything else was tried."""

import json

import pytest

from ..journal import Kind
from .bench import KACTL, OTHER, Bench, as_json, partition_of, topic_of


@pytest.mark.checklist(4)
def test_no_partition_that_has_a_state_is_assigned_to_kactl(bench: Bench) -> None:
    """Brokers that create topics by themselves take kactl for one of them."""
    assigned: dict[str, list[int]] = {}
    begun: set[str] = set()
    misplaced: list[tuple[int, str]] = []
    rewritten: set[str] = set()
    for each in bench.journal():
        topic, partition = topic_of(each.path), partition_of(each.path)
        if each.kind is Kind.DELETE:
            assigned = {name: replicas for name, replicas in assigned.items() if name.rpartition("-")[0] != topic}
            begun.discard(partition or "")
        elif topic is not None:
            written = {f"{topic}-{number}": replicas for number, replicas in as_json(each)["partitions"].items()}
            rewritten |= {name for name in written if on_kactl(assigned.get(name)) and not on_kactl(written[name])}
            assigned |= written
        elif partition is not None:
            begun.add(partition)
        misplaced += [(each.zxid, name) for name in begun if on_kactl(assigned.get(name))]

    assert misplaced == []
    # The first time that offsets were committed a broker spread them over all whom it knew.
    assert any(name.startswith("__consumer_offsets-") for name in rewritten)


def on_kactl(replicas: list[int] | None) -> bool:
    return replicas is not None and not {KACTL, OTHER}.isdisjoint(replicas)


@pytest.mark.checklist(16)
def test_features_stay_empty_and_the_block_of_producer_ids_is_always_one(bench: Bench) -> None:
    features = [as_json(each) for each in bench.journal() if each.path == "/feature" and each.kind is not Kind.DELETE]
    blocks = [each.data for each in bench.journal() if each.path == "/latest_producer_id_block"]

    assert features
    assert all(each["features"] == {} for each in features)
    assert bench.eyes.json("/feature")["features"] == {}
    first, *later = blocks
    assert first != b""  # a node without data, as which it may begin, is something else
    ends = [int(json.loads(block or b"null")["block_end"]) for block in later]
    assert ends
    assert ends == sorted(set(ends))  # no id is given away twice


@pytest.mark.parametrize("field", ["leader_epoch", "controller_epoch"])
def test_epochs_never_go_back(bench: Bench, field: str) -> None:
    latest: dict[str, int] = {}
    steps_back = []
    for each in bench.journal():
        partition = partition_of(each.path)
        if partition is None:
            continue
        if each.kind is Kind.DELETE:
            latest.pop(partition, None)
            continue
        epoch = as_json(each)[field]
        if epoch < latest.get(partition, 0):
            steps_back.append(each)
        latest[partition] = epoch

    assert latest
    assert steps_back == []


def test_there_was_a_higher_epoch_for_each_controller(bench: Bench) -> None:
    epochs = [int(as_json(each)) for each in bench.journal() if each.path == "/controller_epoch"]

    assert epochs == sorted(set(epochs))
    assert len(epochs) > 5


def test_kactl_met_nothing_that_it_had_not_foreseen(bench: Bench) -> None:
    for instance in (bench.kactl, bench.other):
        for log in instance.folder.glob("*.log"):
            text = log.read_text(errors="replace")
            assert "Traceback" not in text
