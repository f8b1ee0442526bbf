"""Every node in Kafka's format, and the decoding of malformed nodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from kactl.model import ZERO_ID, Assignment, Leadership, TopicPartition
from kactl.stores.formats import records
from kactl.stores.formats.records import Malformed

TOPIC_ID = records.decode_id("_-hTjXTqQ0mvGpvX0HdkzA")

brokers = some.integers(0, 2**31 - 1)
replicas = some.lists(brokers, max_size=6, unique=True).map(tuple)


@some.composite
def assignments(draw: some.DrawFn) -> Assignment:
    held = draw(replicas)
    kinds = draw(some.lists(some.sampled_from("kar"), min_size=len(held), max_size=len(held)))
    marked = list(zip(held, kinds, strict=True))
    return Assignment(held, tuple(b for b, k in marked if k == "a"), tuple(b for b, k in marked if k == "r"))


def test_controller_node_equals_kafkas() -> None:
    assert records.encode_controller(1, 1698765432100) == (
        b'{"version":2,"brokerid":1,"timestamp":"1698765432100","kraftControllerEpoch":-1}'
    )


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b'{"version":1,"brokerid":1,"timestamp":"1698765432100"}', (1, 1698765432100)),
        (b'{"version":2,"brokerid":7,"timestamp":"5","kraftControllerEpoch":-1}', (7, 5)),
        (b'{"version":9,"brokerid":7,"timestamp":5,"kraftControllerEpoch":null,"new":[]}', (7, 5)),
        (b'{"brokerid":7}', (7, None)),
        (b'{"brokerid":7,"timestamp":"yesterday"}', (7, None)),
    ],
)
def test_controller_node_needs_only_the_id(data: bytes, found: tuple[int, int | None]) -> None:
    assert records.decode_controller(data) == (*found, "")


def test_controller_node_may_have_an_address() -> None:
    data = records.encode_controller(1, 5, "10.0.0.1:7373")

    assert data == (
        b'{"version":2,"brokerid":1,"timestamp":"5","kraftControllerEpoch":-1,"kactl":{"address":"10.0.0.1:7373"}}'
    )
    assert records.decode_controller(data) == (1, 5, "10.0.0.1:7373")


def test_epoch_is_decimal_text() -> None:
    assert records.encode_epoch(7) == b"7"
    assert records.decode_epoch(b"7") == 7


def test_topic_node_equals_kafkas() -> None:
    data = records.encode_topic(TOPIC_ID, {1: Assignment((2, 3, 1)), 0: Assignment((1, 2, 3))})

    assert data == (
        b'{"version":3,"topic_id":"_-hTjXTqQ0mvGpvX0HdkzA","partitions":{"0":[1,2,3],"1":[2,3,1]},'
        b'"adding_replicas":{},"removing_replicas":{}}'
    )


def test_only_partitions_in_reassignment_are_listed_as_such() -> None:
    data = records.encode_topic(ZERO_ID, {0: Assignment((1,)), 5: Assignment((4, 1), adding=(4,), removing=(1,))})

    assert data == (
        b'{"version":3,"partitions":{"0":[1],"5":[4,1]},"adding_replicas":{"5":[4]},"removing_replicas":{"5":[1]}}'
    )


@pytest.mark.parametrize(
    "data",
    [
        b'{"version":1,"partitions":{"10":[1],"9":[2,1]}}',
        b'{"version":2,"partitions":{"9":[2,1],"10":[1]},"adding_replicas":{},"removing_replicas":{}}',
        b'{"version":4,"partitions":{"10":[1],"9":[2,1]},"adding_replicas":null,"topic_id":null}',
    ],
)
def test_topics_of_all_versions_are_read_in_the_order_of_their_partitions(data: bytes) -> None:
    topic_id, assignment = records.decode_topic(data)

    assert topic_id == ZERO_ID
    assert list(assignment.items()) == [(9, Assignment((2, 1))), (10, Assignment((1,)))]


@given(some.binary(min_size=16, max_size=16), some.dictionaries(some.integers(0, 2**31 - 1), assignments(), max_size=6))
def test_topics_round_trip(topic_id: bytes, assignment: dict[int, Assignment]) -> None:
    assert records.decode_topic(records.encode_topic(topic_id, assignment)) == (topic_id, assignment)


def test_state_node_equals_kafkas() -> None:
    assert records.encode_leadership(Leadership(1, 0, (1, 2, 3), 9, 5)) == (
        b'{"controller_epoch":5,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2,3]}'
    )
    assert records.encode_leadership(Leadership(-1, 2, (3,), 9, 5, recovering=True)) == (
        b'{"controller_epoch":5,"leader":-1,"version":1,"leader_epoch":2,"isr":[3],"leader_recovery_state":1}'
    )


@given(
    some.integers(-1, 2**31 - 1), some.integers(0, 2**31 - 1), replicas, some.integers(0, 2**31 - 1), some.booleans()
)
def test_states_round_trip(
    leader: int, leader_epoch: int, isr: tuple[int, ...], controller_epoch: int, recovering: bool
) -> None:
    node = records.decode_state(
        records.encode_state(
            leader, leader_epoch=leader_epoch, isr=isr, controller_epoch=controller_epoch, recovering=recovering
        )
    )

    assert (node.leader, node.leader_epoch, tuple(node.isr)) == (leader, leader_epoch, isr)
    assert (node.controller_epoch, node.leader_recovery_state) == (controller_epoch, int(recovering))


def test_configurations_equal_kafkas() -> None:
    assert records.encode_config({"retention.ms": "1000"}) == b'{"version":1,"config":{"retention.ms":"1000"}}'
    assert records.decode_config(b'{"version":1,"config":{"retention.ms":"1000"}}') == {"retention.ms": "1000"}
    assert records.decode_config(None) == records.decode_config(b"") == records.decode_config(b'{"version":1}') == {}


@pytest.mark.parametrize(
    ("data", "topic"),
    [
        (b'{"version":2,"entity_path":"topics/foo"}', "foo"),
        (b'{"version":1,"entity_type":"topics","entity_name":"foo"}', "foo"),
        (b'{"version":2,"entity_path":"brokers/1"}', None),
        (b'{"version":2,"entity_path":"users/u/clients/topics"}', None),
        (b'{"version":2,"entity_path":"topics/"}', None),
        (b'{"version":3}', None),
    ],
)
def test_config_notification_names_its_topic(data: bytes, topic: str | None) -> None:
    assert records.decode_config_change(data) == topic
    if topic is not None:
        assert records.decode_config_change(records.encode_config_change(topic)) == topic


def test_notifications_equal_kafkas() -> None:
    names = (TopicPartition("t", 0), TopicPartition("t-1", 12))
    isr = records.encode_isr_notification(names)

    assert isr == b'{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"t-1","partition":12}]}'
    assert records.decode_isr_notification(isr) == names
    assert records.encode_log_dir_notification(2) == b'{"version":1,"broker":2,"event":1}'
    assert records.decode_log_dir_notification(b'{"version":1,"broker":2,"event":1}') == 2


def test_ids_are_22_characters() -> None:
    assert records.encode_id(TOPIC_ID) == "_-hTjXTqQ0mvGpvX0HdkzA"
    assert records.encode_cluster_id("x" * 22) == b'{"version":"1","id":"xxxxxxxxxxxxxxxxxxxxxx"}'


NONSENSE = [None, b"", b"{", b"null", b"[]", b"7x", b"\xff\xfe", b'"text"', b"{}}", b"[" * 100_000]


@pytest.mark.parametrize("data", NONSENSE, ids=range(len(NONSENSE)))
@pytest.mark.parametrize(
    "decode",
    [
        records.decode_controller,
        records.decode_epoch,
        records.decode_topic,
        records.decode_state,
        records.decode_isr_notification,
        records.decode_log_dir_notification,
        records.decode_config_change,
    ],
)
def test_arbitrary_data_is_reported_as_malformed(decode: object, data: bytes | None) -> None:
    assert callable(decode)
    with pytest.raises(Malformed) as caught:
        decode(data)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "data",
    [
        b'{"leader":1,"leader_epoch":0,"isr":[1]}',  # no controller epoch
        b'{"controller_epoch":1,"leader_epoch":0,"isr":[1]}',
        b'{"controller_epoch":1,"leader":1,"isr":[1]}',
        b'{"controller_epoch":1,"leader":1,"leader_epoch":0}',
        b'{"controller_epoch":1,"leader":1,"leader_epoch":0,"isr":[-1]}',
        b'{"controller_epoch":1,"leader":1,"leader_epoch":0,"isr":[2147483648]}',
        b'{"controller_epoch":1,"leader":99999999999999999999,"leader_epoch":0,"isr":[1]}',
        b'{"controller_epoch":1,"leader":1.5,"leader_epoch":0,"isr":[1]}',
        records.encode_state(1, leader_epoch=0, isr=[*range(1001)], controller_epoch=1, recovering=False),
        b'{"controller_epoch":1,"leader":1,"leader_epoch":0,"isr":[1],"leader_recovery_state":2}',
    ],
)
def test_incomplete_or_inconsistent_state_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        records.decode_state(data)


@pytest.mark.parametrize(
    "data",
    [
        b'{"partitions":{"x":[1]}}',
        b'{"partitions":{"-1":[1]}}',
        b'{"partitions":{"0":[-1]}}',
        b'{"partitions":{"0":1}}',
        records.encode_topic(ZERO_ID, {0: Assignment(tuple(range(1001)))}),
        b'{"partitions":{},"topic_id":"short"}',
        b'{"partitions":{},"topic_id":"++++++++++++++++++++++"}',
    ],
)
def test_inconsistent_topic_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        records.decode_topic(data)


@pytest.mark.parametrize("data", [b"-1", b"1.0", b" 1", b"2147483648", "٣".encode()])
def test_invalid_epoch_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        records.decode_epoch(data)
