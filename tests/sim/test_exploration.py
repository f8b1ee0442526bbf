"""The protocol model: no violation, no dead end, and a counterexample for each mutant."""

from pathlib import Path

import pytest

from tests.sim.engine.script import loads
from tests.sim.exploration.__main__ import main
from tests.sim.exploration.components import Broker, Controller, Message, Store
from tests.sim.exploration.conformance import Conformance, run
from tests.sim.exploration.endings import Endings, missing
from tests.sim.exploration.explorer import Explorer
from tests.sim.exploration.model import STATE_BYTES, Model
from tests.sim.exploration.mutants import DEAD_END, MUTANTS
from tests.sim.exploration.scope import DEFAULT
from tests.sim.exploration.scripts import script_of

# Bound of one exploration in `make test`.
STATES_MAX = 300_000
# Explored of the model itself; `python -m tests.sim.exploration` explores more.
STATES = 60_000
# Simulated runs that are compared with the model.
RUNS = 15
# Mutants whose counterexamples take more than half a second to find.
DEEP = {"MUT-16", "MUT-18"}


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(DEFAULT)


@pytest.fixture(scope="module")
def explorer(model: Model) -> Explorer:
    explorer = Explorer(model)
    result = explorer.run(STATES)
    assert result.trace is None, str(result.trace)
    assert result.states >= STATES
    return explorer


@pytest.mark.slow
def test_every_state_ends_at_rest(model: Model, explorer: Explorer) -> None:
    endings = Endings(model)

    for level, position, state in explorer.states(200):
        dead_end = endings.check(state)
        assert dead_end is None, (dead_end, explorer.way(level, position))

    assert endings.searched > 100
    assert endings.given_up == 0


@pytest.mark.slow
def test_dead_end_is_found() -> None:
    model = Model(DEFAULT, DEAD_END)
    explorer = Explorer(model)
    assert explorer.run(2_000).trace is None
    endings = Endings(model)

    found = [dead_end for _, _, state in explorer.states(1) if (dead_end := endings.check(state)) is not None]

    assert found
    assert all(missing(model, dead_end.last) for dead_end in found)
    assert any(dead_end.labels for dead_end in found)


@pytest.mark.parametrize(
    "number", [pytest.param(number, marks=[pytest.mark.slow] if number in DEEP else []) for number in MUTANTS]
)
def test_mutant_has_a_counterexample(number: str) -> None:
    mutant = MUTANTS[number]
    model = Model(DEFAULT, mutant)

    result = Explorer(model).run(STATES_MAX)

    assert result.trace is not None
    assert result.trace.found.invariant in mutant.breaks
    script = script_of(model, result.trace, name=number)
    assert script.actions
    assert all(action.at_ms <= script.duration_ms for action in script.actions)


def test_roots_are_at_rest_or_move(model: Model) -> None:
    reasons = {missing(model, root).partition(":")[0] for root in model.roots()}

    assert reasons <= {"", "LIV-04", "LIV-05", "LIV-08"}
    assert "" in reasons


def test_packed_state_is_restored(model: Model, explorer: Explorer) -> None:
    for _, _, state in explorer.states(1_000):
        packed = model.pack(state)
        assert len(packed) == STATE_BYTES
        assert model.unpack(packed) == state


def test_epochs_are_relative(model: Model) -> None:
    root = model.roots()[0]
    store, controllers, brokers = model.components(root)

    def later(component: Store | Controller | Broker) -> Store | Controller | Broker:
        if isinstance(component, Broker):
            hosts = component.role != 0
            return component._replace(seen=component.seen + 3, leader_epoch=component.leader_epoch + 5 * hosts,
                                      version=component.version + 7 * hosts)  # fmt: skip
        if isinstance(component, Controller) and not component.epoch:
            return component
        moved = component._replace(
            epoch=component.epoch + 3, leader_epoch=component.leader_epoch + 5, version=component.version + 7
        )
        return moved._replace(writer=moved.writer + 3) if isinstance(moved, Store) else moved

    moved = model.number(
        later(store),  # type: ignore[arg-type]
        tuple(map(later, controllers)),  # type: ignore[arg-type]
        tuple(map(later, brokers)),  # type: ignore[arg-type]
    )

    assert model.canonical(moved) == root
    assert model.hash(moved) != model.hash(root)


def test_order_of_controllers_has_no_meaning(model: Model, explorer: Explorer) -> None:
    for _, _, state in explorer.states(1_000):
        store, first, second, *brokers = state
        swapped = (store, second, first, *brokers)
        assert model.hash(swapped) == model.hash(state)  # type: ignore[arg-type]


def test_hash_does_not_depend_on_the_order_of_exploration(model: Model) -> None:
    other = Model(DEFAULT)
    message = Message(1, 0, 0, 9, 9, 1, False, 1)
    for number in range(50):
        # Components get other numbers.
        other.hosts.number(Broker(incarnation=5, queues=((number, (message,)),)))

    assert [other.hash(root) for root in other.roots()] == [model.hash(root) for root in model.roots()]


@pytest.mark.slow
def test_writes_of_simulated_runs_are_edges_of_the_model() -> None:
    conformance = Conformance()

    for seed in range(RUNS):
        outcome = run(seed)
        assert outcome.passed, (seed, outcome.signature, outcome.error)
        stranger = conformance.stranger(outcome)
        assert stranger is None, (seed, stranger)

    assert conformance.edges > 3 * RUNS


@pytest.mark.parametrize("change", [{"leader_epoch": 1}, {"isr": 4}, {"leader": 2}, {"version": 1}])
def test_other_writes_are_no_edges(change: dict[str, int]) -> None:
    conformance = Conformance()
    edges = list(conformance.edges_of(run(0).history.events))
    assert edges

    for edge in edges:
        ((name, step),) = change.items()
        value = getattr(edge.after, name) ^ step if name == "isr" else getattr(edge.after, name) + step
        if edge.after.isr != 4 or name != "isr":
            assert not conformance.is_edge(edge._replace(after=edge.after._replace(**{name: value}))), edge


def test_command_exports_the_counterexample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "script.json"

    assert main(["--mutant", "MUT-01", "--script", str(path)]) == 1

    assert "INV-03" in capsys.readouterr().out
    assert loads(path.read_text(), name=path.name).actions[1].do == "expire"


def test_command_reports_the_number_of_states(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--states", "2000", "--endings", "100"]) == 0

    assert "states end at rest" in capsys.readouterr().out
