"""Epochs never decrease, for any order and repetition of requests."""

from collections.abc import Awaitable, Callable

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from kactl.decide.messages.control import Request
from kactl.model import TopicPartition
from kactl.participant import CachedPartition, HostedPartition, Participant
from kactl.stores.memory import MemoryStore
from tests.support.clocks import ManualClock
from tests.support.control_requests import (
    BILLS_0,
    ORDERS_0,
    ORDERS_1,
    StateRow,
    leader_and_isr,
    stop_replica,
    update_metadata,
)
from tests.support.marks import at_most

from .conftest import Network, Recorder

NAMES = (ORDERS_0, ORDERS_1, BILLS_0)
names = st.sampled_from(NAMES)
rows = st.lists(
    st.builds(
        StateRow,
        names,
        st.integers(1, 3),
        st.integers(0, 4),
        partition_epoch=st.integers(0, 2),
        replicas=st.just((1, 2, 3)),
    ),
    unique_by=lambda row: row.name,
    max_size=3,
)
epochs = st.integers(1, 4)
requests: st.SearchStrategy[Request] = st.one_of(
    st.builds(lambda sent, epoch: leader_and_isr(*sent, epoch=epoch), rows, epochs),
    st.builds(lambda sent, epoch: update_metadata(*sent, epoch=epoch), rows, epochs),
    st.builds(
        lambda sent, epoch, leader_epoch: stop_replica(*sent, epoch=epoch, leader_epoch=leader_epoch),
        st.lists(names, unique=True, max_size=3),
        epochs,
        st.integers(-2, 4),
    ),
)


def play(story: Callable[[Network], Awaitable[None]]) -> None:
    """Run a test function with its own event loop, store and network."""

    async def run() -> None:
        clock = ManualClock()
        async with MemoryStore(clock=clock) as store:
            await story(Network(store, clock))

    anyio.run(run)


def known(participant: Participant) -> list[tuple[HostedPartition | None, CachedPartition | None]]:
    """The participant's replicas and metadata."""
    return [(participant.hosted(name), participant.partition(name)) for name in NAMES]


@given(sent=st.lists(requests, max_size=12))
@settings(max_examples=at_most(60))
def test_epochs_of_a_replica_never_decrease(sent: list[Request]) -> None:
    """A lower leader epoch from a later controller is that of another topic, whose replica begins empty."""

    async def story(network: Network) -> None:
        async with network.participant(listener=(recorder := Recorder())) as participant:
            highest: dict[TopicPartition, int] = {}
            for request in sent:
                before = participant.controller_epoch
                calls = len(recorder.calls)
                response = await network.send(1, request)

                if request.controller_epoch < before:
                    assert response.error == 11
                    assert len(recorder.calls) == calls
                assert participant.controller_epoch == max(before, request.controller_epoch)
                for name in participant.hosts:
                    hosted = participant.hosted(name)
                    assert hosted is not None
                    is_new = f"deletes {name}" in recorder.calls[calls:]
                    assert hosted.leader_epoch >= highest.get(name, 0) or is_new
                    highest[name] = hosted.leader_epoch

    play(story)


@given(sent=st.lists(requests, max_size=8))
@settings(max_examples=at_most(60))
def test_repeated_request_changes_nothing(sent: list[Request]) -> None:
    async def story(network: Network) -> None:
        async with network.participant(listener=(recorder := Recorder())) as participant:
            for request in sent:
                await network.send(1, request)
                calls = len(recorder.calls)
                before = known(participant)

                await network.send(1, request)

                assert len(recorder.calls) == calls
                assert known(participant) == before

    play(story)
