"""State machines with live counts, and the history of a partition."""

import msgspec
import pytest

from kactl.admin.schema import PartitionEvent, PartitionHistory, Problem, ReplicaEvent, StateMachine, StateMachines
from kactl.decide.machines.diagrams import PARTITION, REPLICA
from kactl.model import PartitionState, ReplicaState
from tests.admin.conftest import Served
from tests.support.clocks import settle

pytestmark = pytest.mark.anyio


async def machines(server: Served, query: str = "") -> StateMachines:
    answered: StateMachines = (await server.get(f"/v1/state-machines{query}")).read(StateMachines)
    return answered


def counts(machine: StateMachine) -> dict[str, int]:
    return {state.name: state.count for state in machine.states if state.count}


def made(machine: StateMachine) -> dict[tuple[str, str], int]:
    return {(each.from_state, each.to_state): each.count for each in machine.transitions if each.count}


async def test_states_and_transitions_are_counted(server: Served) -> None:
    found = await machines(server)

    assert counts(found.partition) == {"online": 4}
    assert counts(found.replica) == {"online": 12}
    assert made(found.partition) == {("absent", "new"): 4, ("new", "online"): 4}
    assert made(found.replica) == {("absent", "new"): 12, ("new", "online"): 12}
    assert {each.per_second for each in found.partition.transitions} == {0.0, 4.0}
    assert len(found.partition.states) == len(PartitionState)
    assert len(found.replica.states) == len(ReplicaState)
    assert len(found.partition.transitions) == len(PARTITION.transitions)
    assert len(found.replica.transitions) == len(REPLICA.transitions)


async def test_failure_of_a_broker_is_counted_as_elections(server: Served) -> None:
    assert server.participants is not None
    led = sum(each.leader == 1 for each in server.controller.partitions_of("orders"))
    before = await machines(server)
    await server.participants.kill(1)
    await settle()
    await server.clock.advance(20_000)
    await settle()

    found = await machines(server)

    assert counts(found.replica) == {"online": 8, "offline": 4}
    assert made(found.partition)["online", "offline"] == made(found.partition)["offline", "online"] == led
    assert ("online", "offline") not in made(before.partition)
    assert made((await machines(server, "?window_s=1")).partition) == {}


async def test_history_of_a_partition_has_its_events_with_causes(server: Served) -> None:
    await server.controller.delete_topic("orders")
    await settle()
    found: PartitionHistory = (await server.get("/v1/topics/orders/partitions/2/history")).read(PartitionHistory)

    events = [each for each in found.items if isinstance(each, PartitionEvent)]
    assert [each.to_state for each in events][:2] == ["new", "online"]
    assert events[-1].to_state == "absent"
    assert all(each.because is not None for each in events)
    assert {each.broker for each in found.items if isinstance(each, ReplicaEvent)} == {1, 2, 3}
    assert {each.partition for each in found.items} == {2}
    assert [each.seq for each in found.items] == sorted(each.seq for each in found.items)
    assert found.since_ms is not None
    newest = (await server.get("/v1/topics/orders/partitions/2/history?limit=3")).read(PartitionHistory)
    assert (newest.items, newest.since_ms) == (found.items[-3:], None)


@pytest.mark.parametrize(
    ("path", "status", "word"),
    [
        ("/v1/topics/none/partitions/0/history", 404, "none"),
        ("/v1/topics/orders/partitions/4/history", 404, "4"),
        ("/v1/topics/orders/partitions/x/history", 400, "partition"),
        ("/v1/topics/orders/partitions/0/history?limit=0", 400, "limit"),
        ("/v1/state-machines?window_s=0", 400, "window_s"),
        ("/v1/state-machines?window_s=day", 400, "window_s"),
    ],
)
async def test_invalid_request_is_rejected_by_name(shared: Served, path: str, status: int, word: str) -> None:
    answered = await shared.get(path)

    problem = msgspec.json.decode(answered.body, type=Problem)
    assert (answered.status, problem.status) == (status, status)
    assert word in problem.detail
