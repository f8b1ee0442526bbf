"""Bodies for several brokers are encoded together and equal the body encoded for each broker alone."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.decide.messages.control import LeaderAndIsr, PartitionStates
from kactl.decide.outbound.request_columns import FanOut, PartitionStatesView
from kactl.decide.state.topics import Topics
from kactl.model import TopicRef
from kactl.transports.kafka.codec import request as group
from tests.support import kio_codec as by_kio
from tests.support.message_strategies import LISTENER

from .test_request import BROKER, IBPS, encoder, spoken, whole


def fan_out(seed: int, *, partitions: int, brokers: int, shapes: int, per_topic: int = 3) -> FanOut:
    """Return random partitions for random brokers; at least one partition for each broker."""
    random = np.random.default_rng(seed)

    def lists() -> Any:
        column = np.full((shapes, partitions), -1, np.int32)
        column[0] = random.integers(0, 99, partitions)
        for slot in range(1, shapes):
            column[slot] = np.where(random.random(partitions) < 0.5, random.integers(0, 99, partitions), -1)
        return column

    numbers: Any = {
        name: random.integers(0, 2**31 - 1, partitions, dtype=np.int32)
        for name in ("controller_epoch", "leader", "leader_epoch", "partition_epoch")
    }
    index = np.arange(partitions, dtype=np.int32)
    # Names of several lengths, so that headings have several lengths too.
    refs = [TopicRef("t" * (1 + number % 5) + str(number), number.to_bytes(16, "big")) for number in range(partitions)]
    states = PartitionStates(
        topics=Topics.of(refs),
        topic=index // np.int32(per_topic),
        partition=index % np.int32(per_topic),
        isr=lists(),
        replicas=lists(),
        adding=lists() if shapes > 2 else None,
        is_new=random.random(partitions) < 0.5,
        recovering=random.random(partitions) < 0.5,
        **numbers,
    )
    which = random.random((brokers, partitions)) < 0.5
    which[:, random.integers(partitions)] = True
    _, positions = np.nonzero(which)
    return FanOut(states, positions, [0, *np.cumsum(which.sum(axis=1)).tolist()])


def request(states: PartitionStates) -> LeaderAndIsr:
    return LeaderAndIsr(1000, 5, 77, states, (BROKER,))


@pytest.mark.parametrize("ibp", IBPS)
@given(
    seed=st.integers(0, 2**32),
    partitions=st.integers(1, 300),
    brokers=st.integers(1, 6),
    shapes=st.integers(1, 4),
    per_topic=st.integers(1, 200),
)
def test_bodies_encoded_together_equal_those_of_kio(
    ibp: str, seed: int, partitions: int, brokers: int, shapes: int, per_topic: int
) -> None:
    parts = fan_out(seed, partitions=partitions, brokers=brokers, shapes=shapes, per_topic=per_topic).parts()
    shared = encoder(ibp)

    for part in np.random.default_rng(seed).permutation(len(parts)).tolist():
        frame = whole(shared.frame(request(parts[part]), 1))

        expected = by_kio.request_bytes(
            request(parts[part]), spoken(ibp), correlation_id=1, client_id="1000", listener_name=LISTENER
        )
        assert frame == expected


def test_second_delivery_returns_the_same_bytes() -> None:
    parts = fan_out(3, partitions=500, brokers=4, shapes=2).parts()
    shared = encoder("3.9")

    first = [whole(shared.frame(request(part), 1)) for part in parts]
    second = [whole(shared.frame(request(part), 1)) for part in parts]

    assert first == second
    assert first == [whole(encoder("3.9").frame(request(dataclasses.replace(part)), 1)) for part in parts]


def test_encoding_is_done_in_small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """One body must not block the others for long. A body above the limit is encoded alone."""
    monkeypatch.setattr(group, "ROWS_AT_ONCE", 700)
    every = fan_out(5, partitions=1000, brokers=8, shapes=1)
    parts = every.parts()
    groups = encoder("3.9")._groups
    counts = []
    for part in parts:
        making = groups._makings.get(every)
        before = 0 if making is None else sum(making.made)
        groups.body(part, lambda: encoder("3.9")._headers(every.states, ids=True))
        counts.append(sum(groups._makings[every].made) - before)

    assert sum(counts) == len(parts)
    assert max(counts) == 1, "about five hundred rows each: two do not fit"


def test_no_body_is_stored_after_all_brokers_have_theirs() -> None:
    every = fan_out(7, partitions=100, brokers=5, shapes=2)
    shared = encoder("3.9")
    for part in every.parts():
        shared.frame(request(part), 1)

    making = shared._groups._makings[every]
    assert making.records is None
    assert not making.bodies

    del every, part
    assert not shared._groups._makings


@pytest.mark.parametrize(("notified_rows", "light"), [(100, True), (6000, False)])
def test_encoding_is_light_only_if_all_of_it_is(notified_rows: int, light: bool) -> None:
    every = fan_out(9, partitions=notified_rows, brokers=3, shapes=1)
    shared = encoder("3.9")
    parts = every.parts()

    assert shared.is_light(parts[0], 5000) is light
    shared.frame(request(parts[0]), 1)
    assert all(shared.is_light(part, 5000) for part in parts[1:])


def test_independent_copy_is_encoded_alone() -> None:
    (part,) = fan_out(11, partitions=20, brokers=1, shapes=2).parts()
    copy = dataclasses.replace(part)
    assert isinstance(copy, PartitionStatesView)

    assert whole(encoder("3.9").frame(request(copy), 1)) == whole(encoder("3.9").frame(request(part), 1))
