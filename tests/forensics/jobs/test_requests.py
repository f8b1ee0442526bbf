"""Requests of controllers and their processing by brokers, with a broker for each scenario."""

from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from kactl.forensics.event_types import Kind
from kactl.forensics.jobs import requests

from .tables import as_timed, events, line, rows

LEADER = "LEADER_AND_ISR"
METADATA = "UPDATE_METADATA"
STOP = "STOP_REPLICA"
Found = Mapping[tuple[int, int, str], dict[str, Any]]


def sent(seconds: float, broker: int, size: int, *, controller: int = 1) -> str:
    prefix = f"[Controller id={controller} epoch=5]"
    message = f"Sending LeaderAndIsr request to broker {broker} with 1 become-leader and {size - 1} become-follower"
    return line(seconds, f"{prefix} {message} partitions")


def begun(seconds: float, broker: int, id: int, size: int, *, controller: int = 1) -> str:
    message = f"Handling LeaderAndIsr request correlationId {id} from controller {controller} for {size} partitions"
    return line(seconds, f"[Broker id={broker}] {message}")


def ended(seconds: float, broker: int, id: int, size: int, *, took_ms: int = 7, controller: int = 1) -> str:
    message = f"Finished LeaderAndIsr request in {took_ms}ms correlationId {id} from controller {controller}"
    return line(seconds, f"[Broker id={broker}] {message} for {size} partitions")


def answered(seconds: float, broker: int, id: int, request: str) -> str:
    return line(
        seconds,
        f"[Controller id=1 epoch=5] Received response {{error_code=0}} for request {request} with correlation id {id} "
        f"sent to broker host:9092 (id: {broker} rack: null)",
        level="TRACE",
    )


def state(topic: str, epoch: int) -> str:
    return (
        f"PartitionState(controllerEpoch=5, leader=2, leaderEpoch={epoch}, isr=2,3, zkVersion=12, replicas=1,2,3, "
        "isNew=false)"
    )


def told(seconds: float, broker: int, topic: str, epoch: int) -> str:
    message = f"Sending become-leader LeaderAndIsr request {state(topic, epoch)} to broker {broker} for partition"
    return line(seconds, f"[Controller id=1 epoch=5] {message} {topic}-0", level="TRACE")


def received(seconds: float, broker: int, id: int, topic: str, epoch: int) -> str:
    message = f"Received LeaderAndIsr request {state(topic, epoch)} correlation id {id} from controller 1 epoch 5"
    return line(seconds, f"[Broker id={broker}] {message} for partition {topic}-0", level="TRACE")


def changed(seconds: float, broker: int, id: int, topic: str, *, done: bool) -> str:
    what = "Completed" if done else "Handling"
    how = "for the" if done else "starting the"
    message = f"{what} LeaderAndIsr request correlationId {id} from controller 1 epoch 5 {how} become-leader transition"
    return line(seconds, f"[Broker id={broker}] {message} for partition {topic}-0", level="TRACE")


# 11: a growing queue, and correlation ids that restart.
GROWING = [0.002, 0.004, 0.006, 0.004, 0.1, 0.2, 0.5, 0.7]
# 12: aborted during a request, and returned. 13: its log ends during a request. 14: not completed within half a minute.
BROKERS = {
    11: [
        text
        for n, wait in enumerate(GROWING)
        for text in (begun(n + wait, 11, n % 4, n + 1), ended(n + wait + 0.01, 11, n % 4, n + 1, took_ms=n))
    ],
    12: [begun(1, 12, 0, 5), ended(1.1, 12, 0, 5), begun(2, 12, 1, 5), begun(4, 12, 0, 5), ended(4.1, 12, 0, 5)],
    13: [
        begun(1, 13, 0, 5), ended(1.1, 13, 0, 5), begun(2, 13, 1, 5),
        line(31.9, "[Partition a-0 broker=13] Shrinking ISR from 1,2 to 1", logger="kafka.cluster.Partition"),
    ],
    14: [
        begun(1, 14, 0, 5), ended(1.1, 14, 0, 5), begun(2, 14, 1, 5),
        line(32, "[Partition a-0 broker=14] Shrinking ISR from 1,2 to 1", logger="kafka.cluster.Partition"),
    ],
    # Rejected because another controller is active; and a follower with an unavailable leader.
    15: [
        line(1, "[Broker id=15] Ignoring LeaderAndIsr request from controller 1 with correlation id 3 epoch 5 since "
             "its controller epoch 5 is old. Latest known controller epoch is 6", level="WARN"),
        # Up to 0.11; the second does not name the controller.
        line(1.5, "Broker 15 received update metadata request with correlation id 6 from an old controller 1 with "
             "epoch 5. Latest known controller epoch is 6", level="WARN"),
        line(1.6, "Broker 15 received stop replica request from an old controller epoch 5. Latest known controller "
             "epoch is 6", level="WARN"),
        line(2, "[Broker id=15] Ignoring LeaderAndIsr request from controller 1 with correlation id 4 epoch 5 for "
             "partition a-0 since its associated leader epoch 6 is not higher than the current leader epoch 7"),
        line(3, "[Broker id=15] Received LeaderAndIsrRequest with correlation id 5 from controller 1 epoch 5 for "
             "partition a-0 (last update controller epoch 5) but cannot become follower since the new leader -1 is "
             "unavailable.", level="ERROR"),
    ],
    # At TRACE before 2.6: one line for each partition.
    16: [
        received(10.5, 16, 8, "a", 1), received(10.502, 16, 8, "b", 4), changed(10.51, 16, 8, "a", done=False),
        changed(10.52, 16, 8, "a", done=True), changed(10.6, 16, 8, "b", done=True),
        received(20, 16, 9, "a", 2), changed(20.1, 16, 9, "a", done=True),
        # Sent again on a new connection: the line does not show which of the two requests began.
        received(25, 16, 0, "a", 2), changed(25.1, 16, 0, "a", done=True),
    ],
    17: [
        line(1, "[Broker id=17] Add 12 partitions and deleted 3 partitions from metadata cache in response to "
             "UpdateMetadata request sent by controller 1 epoch 5 with correlation id 77"),
        line(2, "[Broker id=17] Handling StopReplica request correlationId 78 from controller 1 for 4 partitions"),
    ],
    # Its clock is 0.4 s behind, which is within the clock error.
    18: [begun(0.6, 18, 0, 3), ended(0.7, 18, 0, 3)],
    # Connections that did not get beyond their first request.
    20: [
        begun(1, 20, 0, 5), ended(1.1, 20, 0, 5), begun(4, 20, 0, 5), begun(6, 20, 0, 5), ended(6.1, 20, 0, 5),
    ],
    # The same at TRACE: one request with one partition on each connection.
    21: [
        received(1, 21, 0, "a", 1), changed(1.1, 21, 0, "a", done=True),
        received(5, 21, 0, "a", 2), changed(5.1, 21, 0, "a", done=True),
    ],
    # Exactly as long as a controller waits for a response, and longer.
    22: [begun(31, 22, 0, 3)],
    23: [begun(31.001, 23, 0, 3)],
    # With unbounded clocks: begun one second before it was sent, and more.
    24: [begun(1, 24, 0, 3)],
    25: [begun(0.999, 25, 0, 3)],
    # A StopReplica request at TRACE, from 2.6 on.
    26: [
        line(1.2, "[Broker id=26] Received StopReplica request StopReplicaPartitionState(partitionIndex=0, "
             "leaderEpoch=3, deletePartition=false) correlation id 5 from controller 1 epoch 5 for partition a-0",
             level="TRACE"),
    ],
    # The second one was lost: only requests of distinct sizes can be joined.
    19: [begun(1.1, 19, 0, 3), begun(3.1, 19, 1, 4)],
}  # fmt: skip
CONTROLLER = [
    *(sent(n, 11, n + 1) for n in range(len(GROWING))),
    told(10, 16, "a", 1), told(10.004, 16, "b", 4), told(19, 16, "a", 2), told(24, 16, "a", 2),
    answered(10.7, 16, 8, LEADER),
    sent(1, 22, 3), sent(1, 23, 3), sent(2, 24, 3), sent(2, 25, 3),
    line(1, "[Controller id=1 epoch=5] Sending StopReplica request StopReplicaPartitionState(partitionIndex=0, "
         "leaderEpoch=3, deletePartition=false) to broker 26 for partition a-0", level="TRACE"),
    sent(1, 18, 3), sent(1, 19, 3), sent(2, 19, 3), sent(3, 19, 4),
    line(1, "[Controller id=1 epoch=5] Sending UpdateMetadata request to brokers Set(11, 17, 99) for 12 partitions"),
    line(2, "[Controller id=1 epoch=5] Sending StopReplica request for 4 replicas to broker 17"),
]  # fmt: skip


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> Found:
    logs = {(broker, Kind.STATE_CHANGE): lines for broker, lines in BROKERS.items()}
    # All lines of broker 12 and of the controller are in two files.
    logs |= {(1, Kind.STATE_CHANGE): CONTROLLER, (90, Kind.SERVER): CONTROLLER, (91, Kind.SERVER): BROKERS[12]}
    timed = as_timed(events(spark, logs))
    # Broker 18's clock is known to half a second, those of 24 and 25 are unknown.
    bounded = f.when(f.col("speaker") == 18, 500_000).otherwise(0).cast("long")
    error = f.when(~f.col("speaker").isin(24, 25), bounded)
    made = requests.requests(timed.withColumn("at_error_us", error))
    return {(row["controller"], row["broker"], row["request"]): row for row in rows(made)}


def says(found: Found, broker: int, *names: str, request: str = LEADER) -> tuple[Any, ...]:
    row = found[1, broker, request]
    return tuple(row[name] for name in names)


def test_restarted_ids_are_other_requests(found: Found) -> None:
    assert says(found, 11, "sent", "received", "applied", "unanswered") == (8, 8, 8, 0)
    assert says(found, 11, "partitions") == (sum(range(1, 9)),)


def test_processing_time_is_the_measured_one(found: Found) -> None:
    assert says(found, 11, "apply_p50_ms", "apply_max_ms") == (3.5, 7)
    assert says(found, 11, "apply_p99_ms")[0] == pytest.approx(6.93)


def test_growing_queue_is_reported(found: Found) -> None:
    # The first quarter waited 2 and 4 ms, the last 500 and 700.
    p50, p99, growth = says(found, 11, "wait_p50_ms", "wait_p99_ms", "wait_growth")

    assert p50 == pytest.approx(53.0)
    assert p99 == pytest.approx(686.0)
    assert growth == pytest.approx(200.0)


def test_restarted_id_is_another_connection(found: Found) -> None:
    assert says(found, 20, "received", "applied", "unanswered", "partitions") == (3, 2, 1, 15)
    assert says(found, 21, "received", "applied", "unanswered", "partitions") == (2, 2, 0, 2)


@pytest.mark.parametrize(
    ("broker", "unanswered"),
    [
        pytest.param(12, 1, id="the connection broke off and another one followed"),
        pytest.param(13, 0, id="the log ends meanwhile"),
        pytest.param(14, 1, id="the log goes on for half a minute"),
    ],
)
def test_request_without_expected_end_is_unanswered(found: Found, broker: int, unanswered: int) -> None:
    assert says(found, broker, "unanswered") == (unanswered,)


def test_duplicate_file_counts_once(found: Found) -> None:
    assert says(found, 12, "received", "applied", "partitions") == (3, 2, 15)
    assert says(found, 11, "sent") == (8,)


def test_stale_requests_are_counted(found: Found) -> None:
    assert says(found, 15, "ignored", "stale") == (2, 1)
    assert says(found, 15, "ignored", "stale", request=METADATA) == (1, 1)


def test_requests_follow_from_partition_lines(found: Found) -> None:
    assert says(found, 16, "received", "applied", "answered", "partitions") == (3, 3, 1, 4)
    assert says(found, 16, "apply_max_ms") == (100,)
    # The first was sent by 10.004 and begun at 10.5; the others cannot be distinguished.
    assert says(found, 16, "wait_p50_ms", "wait_growth") == (496.0, None)
    # The controller logs the number of sent requests only from 2.6 on, so none is counted here.
    assert says(found, 16, "sent") == (0,)


def test_wait_is_never_negative(found: Found) -> None:
    assert says(found, 18, "wait_p50_ms") == (0.0,)


def test_request_begun_before_clock_error_is_another(found: Found) -> None:
    assert [says(found, broker, "wait_p50_ms") for broker in (24, 25)] == [(0.0,), (None,)]


def test_wait_is_limited_by_the_request_timeout(found: Found) -> None:
    assert [says(found, broker, "wait_p50_ms") for broker in (22, 23)] == [(30_000.0,), (None,)]


def test_equally_many_requests_are_joined_in_order(found: Found) -> None:
    assert says(found, 19, "wait_p50_ms", "wait_p99_ms") == (100.0, 100.0)


def test_metadata_and_stop_requests_are_counted(found: Found) -> None:
    names = ("sent", "received", "applied", "unanswered", "partitions")

    assert says(found, 17, *names, request=METADATA) == (1, 1, 1, 0, 15)
    # No line ever logs that replicas were stopped.
    assert says(found, 17, *names, request=STOP) == (1, 1, None, None, 4)
    assert says(found, 17, "wait_p50_ms", request=STOP) == (0.0,)


def test_stopped_replica_is_no_leader_request(found: Found) -> None:
    assert [request for _, broker, request in found if broker == 26] == [STOP]


def test_received_is_null_without_broker_log(found: Found) -> None:
    names = ("sent", "received", "applied", "answered", "unanswered", "partitions", "wait_p50_ms")

    assert says(found, 99, *names, request=METADATA) == (1, None, None, 0, None, 12, None)


def test_sent_is_null_without_controller_log(spark: SparkSession) -> None:
    (found,) = rows(requests.requests(as_timed(events(spark, {(12, Kind.STATE_CHANGE): BROKERS[12]}))))

    assert (found["controller"], found["broker"]) == (1, 12)
    assert (found["sent"], found["received"], found["answered"], found["unanswered"]) == (None, 3, 0, 1)


def test_response_counts_without_a_finish_line(spark: SparkSession) -> None:
    lines = [received(1, 2, 0, "a", 1), received(2, 2, 1, "a", 2), received(9, 2, 0, "a", 3)]
    answers = [answered(1.5, 2, 0, LEADER), answered(2.5, 2, 1, LEADER)]
    both = {(2, Kind.STATE_CHANGE): lines, (1, Kind.STATE_CHANGE): answers}
    last_lost = {(2, Kind.STATE_CHANGE): lines, (1, Kind.STATE_CHANGE): answers[:1]}

    told = [rows(requests.requests(as_timed(events(spark, logs))))[0]["unanswered"] for logs in (both, last_lost)]

    assert told == [0, 1]
