"""What a broker knows of the cluster from all UpdateMetadata requests that it got, and events that tests make up."""

import asyncio
from typing import Any, NamedTuple

from kactl.messages.admin import ControllerRequest
from kactl.messages.control import UpdateMetadata
from kactl.messages.events import ControllerState, Event
from kactl.model import NO_BROKER
from tests.support.clocks import settle
from tests.support.controller_harness import RecordingBrokers, World


class MetadataView(NamedTuple):
    """What metadata says of one partition."""

    leader: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    offline: tuple[int, ...]


def metadata_at(brokers: RecordingBrokers, broker: int) -> dict[str, MetadataView]:
    """The partitions, as the latest request that spoke of each said."""
    known: dict[str, MetadataView] = {}
    for request in brokers.of(broker, UpdateMetadata):
        assert isinstance(request, UpdateMetadata)
        states = request.states
        for row in range(len(states)):
            name = f"{states.topics[states.topic[row]].name}-{states.partition[row]}"
            known[name] = MetadataView(
                int(states.leader[row]),
                tuple(sorted(_listed(states.isr, row))),
                _listed(states.replicas, row),
                _listed(states.offline_replicas, row),
            )
    return known


def alive(brokers: RecordingBrokers, broker: int) -> list[int]:
    """The brokers that the latest request named as live."""
    last = brokers.of(broker, UpdateMetadata)[-1]
    assert isinstance(last, UpdateMetadata)
    return [each.id for each in last.live_brokers]


def _listed(column: Any, row: int) -> tuple[int, ...]:
    return () if column is None else tuple(int(each) for each in column[:, row] if each != NO_BROKER)


class Blocking(Event, frozen=True):
    """Occupies the controller."""

    state = ControllerState.TOPIC_CHANGE
    on_standby = True


class Failing(ControllerRequest, frozen=True):
    """Its handler raises what it is told."""

    state = ControllerState.TOPIC_CHANGE
    number: int = 0


async def block_loop(w: World) -> asyncio.Event:
    """Occupy the controller until the event is set; what happens meanwhile waits."""
    gate = asyncio.Event()

    async def wait(event: Blocking) -> None:
        await gate.wait()

    w.controller.loop._handlers[Blocking] = wait
    w.controller.loop.inbox.put(Blocking())
    await settle()
    return gate


def let_fail(w: World, error: Exception) -> None:
    """Let the handler of `Failing` raise."""

    async def fail(event: Failing) -> None:
        raise error

    w.controller.loop._handlers[Failing] = fail
