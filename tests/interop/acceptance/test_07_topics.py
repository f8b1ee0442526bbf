"""kafka-topics: topics are created, described, expanded and deleted."""

import re

import pytest

from .bench import BROKERS, MARGIN_S, Bench, until

_PARTITION = re.compile(r"\tTopic: (\S+)\tPartition: (\d+)\tLeader: (\S+)\tReplicas: (\S+)\tIsr: (\S+)")


def described(bench: Bench, topic: str) -> dict[int, tuple[str, list[int], set[int]]]:
    """Return leader, replicas and ISR of each partition, as printed by kafka-topics."""
    text = bench.tools.topics("--describe", "--topic", topic).well().text
    return {
        int(match[2]): (match[3], list(map(int, match[4].split(","))), set(map(int, match[5].split(","))))
        for match in _PARTITION.finditer(text)
    }


def folders(bench: Bench, topic: str) -> list[str]:
    """Return the folders of a topic left on the brokers' disks, renamed for deletion or not."""
    return [
        folder.name
        for broker in bench.cluster.brokers
        for folder in (broker.folder / "logs").iterdir()
        if folder.name.startswith(f"{topic}-")
    ]


@pytest.mark.checklist(7)
def test_topics_are_created_by_count_expanded_and_deleted(bench: Bench) -> None:
    create = ("--create", "--topic", "counted", "--partitions", "4", "--replication-factor", "2")
    created = bench.tools.topics(*create)
    until(lambda: bench.is_announced("counted", 4), "all brokers to know it", MARGIN_S)
    first = described(bench, "counted")
    again = bench.tools.topics(*create)
    bench.tools.topics("--alter", "--topic", "counted", "--partitions", "7").well()
    until(lambda: bench.is_announced("counted", 7), "all brokers to know its new partitions", MARGIN_S)
    grown = described(bench, "counted")
    fewer = bench.tools.topics("--alter", "--topic", "counted", "--partitions", "2")
    until(lambda: len(folders(bench, "counted")) == 14, "a folder for each replica", MARGIN_S)
    deleted = bench.tools.topics("--delete", "--topic", "counted")
    until(lambda: not folders(bench, "counted"), "the folders to vanish", MARGIN_S)

    assert created.well().lines == ["Created topic counted."]
    assert again.code == fewer.code == 1
    assert "exists" in again.text
    assert "7" in fewer.text
    assert sorted(first) == [0, 1, 2, 3]
    assert sorted(grown) == list(range(7))
    for leader, replicas, isr in grown.values():
        assert leader == str(replicas[0])
        assert set(replicas) == isr
        assert len(isr) == 2
        assert isr <= set(BROKERS)
    assert {number: grown[number][1] for number in first} == {
        number: partition[1] for number, partition in first.items()
    }
    deleted.well()
    assert bench.reader.data("/brokers/topics/counted") is None
    assert bench.reader.data("/config/topics/counted") is None
    assert bench.reader.children("/admin/delete_topics") == []
    assert "counted" not in bench.tools.topics("--list").well().lines


@pytest.mark.checklist(7)
def test_topics_are_created_with_a_manual_assignment(bench: Bench) -> None:
    uneven = bench.tools.topics("--create", "--topic", "placed", "--replica-assignment", "1:2,2:3,3:1:2")
    bench.create("placed", "--replica-assignment", "1:2,2:3,3:1", partitions=3)
    partitions = described(bench, "placed")
    on_kactl = bench.tools.topics(
        "--create", "--topic", "misplaced", "--replica-assignment", f"1:{bench.kactl.node_id}"
    )
    too_many = bench.tools.topics("--create", "--topic", "misplaced", "--partitions", "1", "--replication-factor", "4")
    bench.delete("placed")

    assert uneven.code == 1
    assert partitions == {0: ("1", [1, 2], {1, 2}), 1: ("2", [2, 3], {2, 3}), 2: ("3", [3, 1], {1, 3})}
    assert on_kactl.code == 1
    assert too_many.code == 1
    assert re.search(r"\b4\b.*\b3\b", too_many.text)
    assert bench.reader.data("/brokers/topics/misplaced") is None
    bench.rest()
