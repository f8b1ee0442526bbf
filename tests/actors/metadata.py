"""A broker's view of the metadata from its UpdateMetadata requests, and events defined by tests."""

import asyncio
from typing import NamedTuple

from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.messages.control import UpdateMetadata
from kactl.decide.messages.events import ControllerState, Event
from tests.support.clocks import settle
from tests.support.controller_harness import RecordingBrokers, World
from tests.support.machine_harness import broker_ids_in


class MetadataView(NamedTuple):
    """Metadata of one partition."""

    leader: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    offline: tuple[int, ...]


def metadata_at(brokers: RecordingBrokers, broker: int) -> dict[str, MetadataView]:
    """Returns the partitions as in the latest request that contains each."""
    known: dict[str, MetadataView] = {}
    for request in brokers.of(broker, UpdateMetadata):
        assert isinstance(request, UpdateMetadata)
        states = request.states
        for row in range(len(states)):
            name = f"{states.topics[states.topic[row]].name}-{states.partition[row]}"
            known[name] = MetadataView(
                int(states.leader[row]),
                tuple(sorted(broker_ids_in(states.isr, row))),
                broker_ids_in(states.replicas, row),
                broker_ids_in(states.offline_replicas, row),
            )
    return known


def alive(brokers: RecordingBrokers, broker: int) -> list[int]:
    """Returns the live brokers of the latest request."""
    last = brokers.of(broker, UpdateMetadata)[-1]
    assert isinstance(last, UpdateMetadata)
    return [each.id for each in last.live_brokers]


class Blocking(Event, frozen=True):
    """Event that occupies the controller."""

    state = ControllerState.TOPIC_CHANGE
    on_standby = True


class Failing(ControllerRequest, frozen=True):
    """Request whose handler raises a given error."""

    state = ControllerState.TOPIC_CHANGE
    number: int = 0


async def block_loop(w: World) -> asyncio.Event:
    """Occupy the controller until the returned event is set. Later events are queued."""
    gate = asyncio.Event()

    async def wait(event: Blocking) -> None:
        await gate.wait()

    w.controller.loop._handlers[Blocking] = wait
    w.controller.loop.inbox.put(Blocking())
    await settle()
    return gate


def let_fail(w: World, error: Exception) -> None:
    """Let the handler of `Failing` raise `error`."""

    async def fail(event: Failing) -> None:
        raise error

    w.controller.loop._handlers[Failing] = fail
