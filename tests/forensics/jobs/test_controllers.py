"""Terms of controllers: failover, gaps, and two controllers at once."""

from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kactl.forensics.event_types import Kind
from kactl.forensics.jobs import controllers

from .tables import as_timed, controller_line, events, line, moment, rows, timed_table

QUORUM = "org.apache.kafka.controller.QuorumController"
Found = Mapping[tuple[int | None, int | None], dict[str, Any]]


def elected(seconds: float, controller: int, epoch: int) -> str:
    return controller_line(
        seconds,
        controller,
        f"{controller} successfully elected as the controller. Epoch incremented to {epoch} and epoch zk version is "
        f"now {epoch}",
    )


def act(seconds: float, controller: int, epoch: int, topic: str = "a") -> str:
    message = f"Changed partition {topic}-0 from OfflinePartition to OnlinePartition with state "
    state = "LeaderAndIsr(leader=2, leaderEpoch=7, isr=List(2, 3), zkVersion=12)"
    return line(seconds, f"[Controller id={controller} epoch={epoch}] {message}{state}")


def refusal(seconds: float, broker: int, controller: int, epoch: int) -> str:
    return line(
        seconds,
        f"[Broker id={broker}] Ignoring LeaderAndIsr request from controller {controller} with correlation id 4 epoch "
        f"{epoch} since its controller epoch {epoch} is old. Latest known controller epoch is {epoch + 1}",
        level="WARN",
    )


def of(timed: DataFrame) -> Found:
    return {(row["controller"], row["controller_epoch"]): row for row in rows(controllers.controllers(timed))}


# Controller 1 takes over with epoch 5 and dies at 100; 2 follows at 118. At 200 the session of 2 expires, but it acts
# until 203, while 3 is the controller from 201 on. Controller 8 is known only from a broker's line. 1 is elected again
# with epoch 9.
NEW = [
    elected(10, 1, 5),
    controller_line(11.2, 1, "Ready to serve as the new controller with epoch 5"),
    controller_line(11.5, 1, "Starting the controller scheduler", level="DEBUG"),
    controller_line(50, 1, "Newly added brokers: 4, deleted brokers: , all live brokers: 1,2,3,4"),
    elected(300, 1, 9),
]
SECOND = [
    elected(118, 2, 6),
    controller_line(119, 2, "Ready to serve as the new controller with epoch 6"),
    controller_line(204, 2, "Controller moved to another broker when processing BrokerChange."),
    controller_line(204.1, 2, "Resigned", level="DEBUG"),
]
THIRD = [
    elected(201, 3, 7),
    controller_line(203.5, 3, "Newly added brokers: , deleted brokers: 2, all live brokers: 3"),
]
LOGS = {
    (1, Kind.CONTROLLER): NEW,
    (1, Kind.STATE_CHANGE): [act(12, 1, 5), act(13, 1, 5, "b")],
    (1, Kind.SERVER): [line(100, "[Partition a-0 broker=1] Shrinking ISR from 1,2 to 1", logger="kafka.cluster.X")],
    (2, Kind.CONTROLLER): SECOND,
    (2, Kind.STATE_CHANGE): [act(120, 2, 6), act(203, 2, 6)],
    (3, Kind.CONTROLLER): THIRD,
    (3, Kind.STATE_CHANGE): [
        act(202, 3, 7),
        refusal(203.1, 3, 2, 6),
        refusal(203.2, 3, 2, 6),
        line(
            280, "[Broker id=3] Add 3 partitions and deleted 0 partitions from metadata cache in response to "
            "UpdateMetadata request sent by controller 4 epoch 8 with correlation id 1",
        ),
    ],
    # A copy of these lines in a second file.
    (9, Kind.STATE_CHANGE): [act(12, 1, 5), refusal(203.1, 3, 2, 6)],
}  # fmt: skip


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> Found:
    return of(as_timed(events(spark, LOGS)))


def test_each_term_is_one_row(found: Found) -> None:
    assert found.keys() == {(1, 5), (2, 6), (3, 7), (4, 8), (1, 9)}
    assert {row["source"] for row in found.values()} == {"zookeeper"}


def test_failover_lasts_from_election_to_last_step(found: Found) -> None:
    row = found[1, 5]

    assert (row["elected_at"], row["ready_at"], row["started_at"]) == (moment(10), moment(11.2), moment(11.5))
    assert row["failover_ms"] == 1500
    assert found[2, 6]["failover_ms"] == 1000  # until ready, because no line logs the last step
    assert found[3, 7]["failover_ms"] is None


def test_lines_without_epoch_belong_to_the_running_term(found: Found) -> None:
    assert found[1, 5]["last_act_at"] == moment(50)
    assert found[1, 9]["last_act_at"] == moment(300)


def test_vacancy_lasts_from_last_sign_to_next_election(found: Found) -> None:
    assert found[1, 5]["gap_ms"] is None
    assert found[2, 6]["gap_ms"] == 18_000  # the first controller's broker still logged at 100, as a broker
    assert found[3, 7]["gap_ms"] == 0


def test_vacancy_is_null_after_controller_without_log(found: Found) -> None:
    assert found[1, 9]["gap_ms"] is None


def test_overlap_is_seen_from_late_actions_of_the_first(found: Found) -> None:
    row = found[2, 6]

    assert row["overlap_ms"] == 2000  # until 203; the line at 204 about the third controller is no act
    assert row["resigned_at"] == moment(204)
    assert found[1, 5]["overlap_ms"] == 0


def test_rejected_requests_count_once_across_files(found: Found) -> None:
    assert (found[2, 6]["refused"], found[1, 5]["refused"]) == (2, 0)


def test_moves_count_once_across_files(found: Found) -> None:
    assert (found[1, 5]["partitions_moved"], found[2, 6]["partitions_moved"]) == (2, 2)


def test_controller_without_log_is_known_by_its_requests(found: Found) -> None:
    row = found[4, 8]

    assert (row["elected_at"], row["last_act_at"], row["refused"], row["overlap_ms"]) == (None, None, 0, None)


@pytest.mark.parametrize(
    ("error_us", "overlap_ms"),
    [
        pytest.param(900_000, 2000, id="less"),
        pytest.param(1_000_000, 0, id="as much"),
        pytest.param(None, None, id="?"),
    ],
)
def test_overlap_within_clock_error_is_not_reported(
    spark: SparkSession, error_us: int | None, overlap_ms: int | None
) -> None:
    logs = {key: LOGS[key] for key in LOGS if key[0] in (2, 3)}
    timed = as_timed(events(spark, logs)).withColumn("at_error_us", f.lit(error_us).cast("long"))

    assert of(timed)[2, 6]["overlap_ms"] == overlap_ms


def test_epoch_has_its_own_line_before_2_1(spark: SparkSession) -> None:
    logs = {
        (1, Kind.CONTROLLER): [
            controller_line(10, 1, "1 successfully elected as the controller"),
            controller_line(10.1, 1, "Epoch incremented to 5"),
            controller_line(11, 1, "Starting the controller scheduler"),
            controller_line(20, 1, "Resigned"),
            controller_line(30, 1, "1 successfully elected as the controller"),
            controller_line(30.1, 1, "Incremented epoch to 7"),
            controller_line(90, 1, "1 successfully elected as the controller"),
        ],
        (1, Kind.STATE_CHANGE): [act(12, 1, 5), act(31, 1, 7)],
        (2, Kind.STATE_CHANGE): [act(1, 2, 4), act(25, 2, 6)],
        # The line with the epoch is missing. An act with an epoch follows within a minute, or later and from another
        # election.
        (3, Kind.CONTROLLER): [controller_line(100, 3, "3 successfully elected as the controller")],
        (3, Kind.STATE_CHANGE): [act(160, 3, 8)],
        (4, Kind.CONTROLLER): [controller_line(200, 4, "4 successfully elected as the controller")],
        (4, Kind.STATE_CHANGE): [act(260.001, 4, 9)],
    }

    found = of(as_timed(events(spark, logs)))

    assert {key: row["elected_at"] for key, row in found.items()} == {
        (2, 4): None,
        (1, 5): moment(10),
        (2, 6): None,
        (1, 7): moment(30),
        (1, None): moment(90),
        (3, 8): moment(100),
        (4, None): moment(200),
        (4, 9): None,
    }
    assert (found[1, 5]["resigned_at"], found[1, 5]["failover_ms"]) == (moment(20), 1000)
    assert found[1, 7]["resigned_at"] is None
    assert found[1, None]["last_act_at"] == moment(90)


def test_lines_before_1_0_are_understood(spark: SparkSession) -> None:
    def said(seconds: float, message: str) -> str:
        return line(seconds, f"[Controller 1]: {message}", logger="kafka.controller.KafkaController")

    refused = "Broker 2 received update metadata request with correlation id 9 from an old controller 1 with epoch 5."
    logs = {
        (1, Kind.CONTROLLER): [
            said(10, "1 successfully elected as the controller"),  # only in 0.11
            said(10.1, "Broker 1 starting become controller state transition"),
            said(10.2, "Controller 1 incremented epoch to 5"),
            said(12, "Broker 1 is ready to serve as the new controller with epoch 5"),
            line(
                20,
                "[SessionExpirationListener on 1], ZK expired; shut down all controller components and try to re-elect",
                logger="kafka.controller.KafkaController$SessionExpirationListener",
            ),
            said(20.5, "Broker 1 resigned as the controller"),
            said(21, "Broker 1 starting become controller state transition"),
            said(21.1, "Controller 1 incremented epoch to 6"),
            said(30, "Broker 1 resigned as the controller"),
        ],
        (2, Kind.STATE_CHANGE): [line(31, f"{refused} Latest known controller epoch is 6", level="WARN")],
    }

    found = of(as_timed(events(spark, logs)))

    assert found.keys() == {(1, 5), (1, 6)}
    first, second = found[1, 5], found[1, 6]
    assert (first["elected_at"], first["ready_at"], first["resigned_at"]) == (moment(10), moment(12), moment(20))
    assert (second["elected_at"], second["resigned_at"]) == (moment(21), moment(30))
    assert (first["refused"], second["refused"]) == (1, 0)


def test_terms_of_kraft_and_kactl_are_separate(spark: SparkSession) -> None:
    def quorum(seconds: float, controller: int, message: str) -> str:
        return line(seconds, f"[QuorumController id={controller}] {message}", logger=QUORUM)

    logs = {
        (3000, Kind.CONTROLLER): [
            quorum(1, 3000, "In the new epoch 3, the leader is 3001."),
            quorum(2, 3000, "Becoming the active controller at epoch 5, next write offset 12."),
            quorum(3, 3000, "Exceptionally slow controller event registerBroker took 2123 ms."),
            quorum(4, 3000, "Exceptionally slow controller event completeElection took 23 ms."),
            quorum(9, 3000, "Renouncing the leadership due to a metadata log event."),
            quorum(9.5, 3000, "In the new epoch 6, the leader is (none)."),
        ],
        (3001, Kind.CONTROLLER): [quorum(10, 3001, "Becoming the active controller at epoch 7, next write offset 99.")],
    }
    kactl = {"kind": "kactl", "role": "controller", "at_error_us": 0}
    own = timed_table(
        spark,
        [
            kactl | {"type": "partition", "controller_epoch": 39, "topic": "a", "partition": 0, "at": moment(0)},
            kactl | {"type": "partition", "controller_epoch": 40, "topic": "a", "partition": 0, "at": moment(1)},
            kactl | {"type": "controller-resigned", "controller": 2, "controller_epoch": 40, "at": moment(2)},
            kactl | {"type": "controller-elected", "controller": 1, "controller_epoch": 41, "at": moment(5)},
            kactl | {"type": "partition", "controller_epoch": 41, "topic": "a", "partition": 0, "at": moment(6)},
        ],
    )

    found = of(as_timed(events(spark, logs)).unionByName(own))

    assert {key: row["source"] for key, row in found.items()} == {
        (3001, 3): "kraft",
        (3000, 5): "kraft",
        (3001, 7): "kraft",
        (None, 39): "kactl",
        (2, 40): "kactl",
        (1, 41): "kactl",
    }
    assert (found[3000, 5]["slowest_event_ms"], found[3000, 5]["resigned_at"]) == (2123, moment(9))
    assert (found[3000, 5]["overlap_ms"], found[3001, 7]["gap_ms"]) == (0, 1000)
    assert (found[2, 40]["resigned_at"], found[1, 41]["gap_ms"]) == (moment(2), 3000)
    assert (found[1, 41]["partitions_moved"], found[1, 41]["last_act_at"]) == (1, moment(6))


def test_terms_of_an_early_kraft_controller(spark: SparkSession) -> None:
    def quorum(seconds: float, controller: int, message: str) -> str:
        return line(seconds, f"[Controller {controller}] {message}", logger=QUORUM)

    registered = "RegisterBrokerRecord(brokerId=1, incarnationId=PTLuxh5SRDSeq5YvFUyqzg, brokerEpoch=44, endPoints=[])"
    logs = {
        (3000, Kind.CONTROLLER): [
            quorum(1, 3000, "Becoming active at controller epoch 5."),
            quorum(2, 3000, f"Registered new broker: {registered}"),
            quorum(4, 3000, "We were the leader in epoch 5, and are still the leader in the new epoch 6."),
            quorum(
                9, 3000, "Renouncing the leadership at oldEpoch 6 due to a metadata log event. Reverting to last x."
            ),
            # It follows the new controller.
            quorum(12, 3000, f"Re-registered broker id 1: {registered}"),
        ],
        (3001, Kind.CONTROLLER): [
            quorum(10, 3001, "Becoming the active controller at epoch 7, committed offset 9 and committed epoch 6."),
            quorum(
                20,
                3001,
                "writeNoOpRecord: failed with unknown server exception X at epoch 7 in 9 us.  Reverting to "
                "last committed offset 77.",
            ),
        ],
    }

    found = of(as_timed(events(spark, logs)))

    assert {key: row["source"] for key, row in found.items()} == dict.fromkeys(
        [(3000, 5), (3000, 6), (3001, 7)], "kraft"
    )
    assert (found[3000, 5]["elected_at"], found[3000, 6]["elected_at"]) == (moment(1), moment(4))
    assert (found[3000, 5]["resigned_at"], found[3000, 6]["resigned_at"]) == (None, moment(9))
    assert (found[3000, 6]["overlap_ms"], found[3001, 7]["gap_ms"]) == (0, 1000)
    assert found[3001, 7]["resigned_at"] == moment(20)
