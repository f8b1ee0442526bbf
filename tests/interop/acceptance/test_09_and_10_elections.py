"""kafka-leader-election and kafka-configs: preferred and unclean elections."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from .bench import MARGIN_S, SESSION_S, Bench, until

ELECTED, CONFIGURED = "torn-and-elected", "torn-and-configured"


@pytest.mark.checklist(9)
def test_preferred_replica_leads_on_request(bench: Bench, tmp_path: Path) -> None:
    bench.create("turned", "--replica-assignment", "1:2:3")
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "turned", "partition": 0, "replicas": [2, 1, 3]}]})
    )
    bench.tools.reassign("--execute", "--reassignment-json-file", str(plan)).well()
    until(lambda: bench.reader.assignments()["turned-0"] == (2, 1, 3), "the new order", MARGIN_S)
    before = bench.reader.states()["turned-0"]

    ask = ("--election-type", "preferred", "--topic", "turned", "--partition", "0")
    elected = bench.tools.elect(*ask).well()
    again = bench.tools.elect(*ask).well()

    after = bench.reader.states()["turned-0"]
    assert (before.leader, after.leader) == (1, 2)
    assert after.leader_epoch > before.leader_epoch
    assert "Successfully completed leader election (PREFERRED) for partitions turned-0" in elected.text
    assert "Valid replica already elected for partitions turned-0" in again.text
    bench.delete("turned")
    bench.rest()


@pytest.mark.checklist(10)
def test_topic_override_is_applied_by_brokers(bench: Bench) -> None:
    bench.create("limited", "--partitions", "1", "--replication-factor", "3", partitions=1)
    on_topic = ("--entity-type", "topics", "--entity-name", "limited")
    wrote = write(bench, "limited", size=50_000)

    bench.tools.configs("--alter", *on_topic, "--add-config", "max.message.bytes=1000").well()
    described = bench.tools.configs("--describe", *on_topic).well()
    until(lambda: write(bench, "limited", size=50_000) == KafkaError.MSG_SIZE_TOO_LARGE, "the limit to hold", MARGIN_S)
    bench.tools.configs("--alter", *on_topic, "--delete-config", "max.message.bytes").well()
    until(lambda: write(bench, "limited", size=50_000) is None, "the limit to be lifted", MARGIN_S)

    assert wrote is None
    assert "max.message.bytes=1000" in described.text
    bench.delete("limited")
    bench.rest()


@pytest.fixture(scope="class")
def torn(bench: Bench) -> Iterator[None]:
    """Two topics whose only in-sync replica is dead while the other replica lives."""
    for topic in (ELECTED, CONFIGURED):
        bench.create(topic, "--replica-assignment", "1:2")
    bench.cluster[2].stop()
    assert all(bench.reader.states()[f"{topic}-0"].isr == (1,) for topic in (ELECTED, CONFIGURED))
    bench.cluster[1].kill()
    until(
        lambda: all(leader(bench, topic) == -1 for topic in (ELECTED, CONFIGURED)), "no leaders", SESSION_S + MARGIN_S
    )
    bench.cluster[2].start()
    until(lambda: 2 in bench.reader.states()["orders-0"].isr, "the other one to be back in sync elsewhere", MARGIN_S)
    yield
    bench.cluster[1].start()
    bench.rest()
    for topic in (ELECTED, CONFIGURED):
        bench.delete(topic)
    bench.rest()


def leader(bench: Bench, topic: str) -> int:
    return bench.reader.states_of(topic)[f"{topic}-0"].leader


@pytest.mark.usefixtures("torn")
class TestTorn:
    """Tests while broker 1 is dead."""

    @pytest.mark.checklist(9)
    def test_no_leader_without_an_unclean_election_request(self, bench: Bench) -> None:
        preferred = bench.tools.elect("--election-type", "preferred", "--topic", ELECTED, "--partition", "0")
        before = [leader(bench, topic) for topic in (ELECTED, CONFIGURED)]

        unclean = bench.tools.elect("--election-type", "unclean", "--topic", ELECTED, "--partition", "0").well()

        assert preferred.code == 1
        assert "PreferredLeaderNotAvailable" in preferred.text
        assert before == [-1, -1]
        assert f"Successfully completed leader election (UNCLEAN) for partitions {ELECTED}-0" in unclean.text
        state = bench.reader.states()[f"{ELECTED}-0"]
        assert (state.leader, state.isr) == (2, (2,))
        assert leader(bench, CONFIGURED) == -1
        assert write(bench, ELECTED, size=10) is None

    @pytest.mark.checklist(10)
    def test_leader_is_elected_once_the_topic_allows_unclean(self, bench: Bench) -> None:
        before = leader(bench, CONFIGURED)

        bench.tools.configs(
            "--alter", "--entity-type", "topics", "--entity-name", CONFIGURED,
            "--add-config", "unclean.leader.election.enable=true",
        ).well()  # fmt: skip
        until(lambda: leader(bench, CONFIGURED) == 2, "a leader", MARGIN_S)

        assert before == -1
        assert bench.reader.states()[f"{CONFIGURED}-0"].isr == (2,)
        assert write(bench, CONFIGURED, size=10) is None


def write(bench: Bench, topic: str, *, size: int) -> int | None:
    """Write one record to partition 0. Returns the error code, None on success."""
    producer = Producer({"bootstrap.servers": bench.cluster.bootstrap, "delivery.timeout.ms": 30_000})
    errors: list[KafkaError | None] = []
    try:
        producer.produce(topic, b"x" * size, partition=0, on_delivery=lambda error, _: errors.append(error))
    except KafkaException as refused:
        return int(refused.args[0].code())
    assert producer.flush(MARGIN_S) == 0
    (error,) = errors
    return None if error is None else int(error.code())
