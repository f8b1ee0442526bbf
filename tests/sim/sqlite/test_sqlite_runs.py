"""Whole clusters over the SQLite world: controllers, brokers, faults and checkers, from seeds."""

import pytest

from kactl.stores.base import Names
from kactl.testing import SimLoop
from kactl.testing.history import History
from tests.sim.engine.checkers.events import validate
from tests.sim.engine.exploring import script_of
from tests.sim.engine.run import Outcome, run_script
from tests.sim.engine.stored import EntryStored
from tests.sim.engine.worlds.sqlite import SqliteWorld

from .test_sqlite_world import run_world
from .workload import storm

SEED = 0


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return run_script(script_of(SEED, "sqlite"))


@pytest.mark.slow
def test_cluster_over_one_file_keeps_its_promises(outcome: Outcome) -> None:
    assert outcome.passed, outcome.error
    assert {"store.commit", "store.answered", "store.session"} <= {event.kind for event in outcome.history.events}
    for event in outcome.history.events:
        validate(event)


@pytest.mark.slow
def test_equal_scripts_make_equal_runs(outcome: Outcome) -> None:
    assert run_script(script_of(SEED, "sqlite")).digest == outcome.digest


def test_content_is_what_a_client_reads() -> None:
    async def main(loop: SimLoop, world: SqliteWorld, history: History) -> None:
        await storm(loop, world, history, faults=5)
        stored = EntryStored(lambda: world.content)
        for node in loop.nodes:
            loop.kill(node)
        async with world.client(None) as store:
            names = sorted(stored.assignments())
            read = await store.leaderships(Names.of(names))
            assert sorted(stored.topics()) == await store.topics()
            assert stored.assignments() == dict((await store.assignments(await store.topics())).items())
            assert stored.leaderships() == {name: read.one(row) for row, name in enumerate(names) if read.found[row]}
            assert stored.registrations() == {id_: broker.epoch for id_, broker in (await store.brokers()).items()}
            assert list(stored.deletions()) == await store.deletions()
            assert ("reassignment" in stored.requests()) == (await store.reassignment_request() is not None)
            assert {topic: stored.config(topic) for topic in stored.topics()} == await store.topic_configs(
                await store.topics()
            )
            controller = await store.controller()
            assert (stored.controller() is None) == (controller is None)

    run_world(main, seed=3)
