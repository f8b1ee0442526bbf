"""The SQLite world under its faults: acknowledged writes are kept completely, also when processes are killed."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kactl.model import Fence
from kactl.model.errors import ControllerMoved, StoreUnavailable
from kactl.stores.base import Names, Store
from kactl.stores.sqlite.database import Database
from kactl.testing import SimLoop, sim
from kactl.testing.history import Event, History
from kactl.testing.violations import Violation
from tests.sim.engine.worlds.sqlite import SqliteWorld
from tests.sim.engine.worlds.sqlite.client import WRITING
from tests.support.marks import fast_and_slow
from tests.support.store_clients import ALL, ORDERS, THREE_PARTITIONS, create_and_lead, new_write
from tests.testing.running import this_loop

from .broken_code import split_creation_of_topics
from .workload import Hosts, storm

# Methods of `Store` that read, or do nothing to the file.
READING = {
    "__aenter__", "__aexit__", "assignments", "broker", "brokers", "changes", "check", "controller", "default_config",
    "deletions", "features", "isr_notifications", "leaderships", "log_dir_notifications", "membership",
    "partitions_begun", "preferred_election_request", "producer_ids", "reassignment_request", "subscribe",
    "take_deleted_topics",
    "topic_configs", "topic_id_copies", "topics", "trouble", "watch_leaderships",
}  # fmt: skip
FAULTS = 8


def run_world(
    main: Callable[[SimLoop, SqliteWorld, History], Awaitable[Any]], *, seed: int | str = 0
) -> tuple[Any, History]:
    """Run a program over a new world. Returns its result, and the history."""
    histories: list[History] = []

    async def in_world() -> Any:
        loop = this_loop()
        history = History(lambda: loop.now_s * 1000)
        histories.append(history)
        with SqliteWorld(loop, history) as world:
            result = await main(loop, world, history)
            for node in loop.nodes:
                loop.kill(node)
            world.bury_killed()
            return result

    return sim.run(in_world, seed=seed), histories[0]


def run_storm(seed: int) -> tuple[Hosts, History]:
    return run_world(lambda loop, world, history: storm(loop, world, history, faults=FAULTS), seed=seed)


def stale_commit(events: list[Event]) -> Event | None:
    """Returns the first commit that was accepted with the fence of an earlier controller."""
    epoch = 0
    for event in events:
        if event.kind == "store.commit" and event.fields["outcome"] == "ok":
            if event.fields["ops"] and event.fields["fence"] not in (None, epoch):
                return event
            epoch = next((op.value["epoch"] for op in event.fields["ops"] if op.key == "epoch"), epoch)
    return None


@pytest.mark.parametrize("seed", fast_and_slow(range(3), fast=1))
def test_processes_survive_each_others_faults(seed: int) -> None:
    hosts, history = run_storm(seed)

    assert hosts.errors == []
    assert stale_commit(history.events) is None
    assert hosts.done["commit"] > 0
    assert any(event.kind == "store.reopened" for event in history.events)


@pytest.mark.slow
def test_equal_seeds_make_equal_histories() -> None:
    assert run_storm(1)[1].digest() == run_storm(1)[1].digest()


def test_every_method_of_a_store_reads_or_is_recorded() -> None:
    methods = {name for name, _ in inspect.getmembers(Store) if not name.startswith("_") or name.startswith("__a")}

    own = {"create_topics"}  # of SqliteStore
    assert methods - {"__abstractmethods__", "__annotations__"} == READING | {"new_session", *WRITING} - own


@pytest.mark.slow
def test_stale_fence_that_is_accepted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Database, "check_fence", lambda self, fence: None)

    assert any(stale_commit(run_storm(seed)[1].events) is not None for seed in range(3))


def test_operation_in_two_transactions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    split_creation_of_topics(monkeypatch)

    with pytest.raises(Violation, match=r"create_topic of process . changed .* in a second transaction"):
        run_storm(0)


def test_commit_that_fails_after_its_effect_has_an_unknown_outcome() -> None:
    async def main(loop: SimLoop, world: SqliteWorld, history: History) -> None:
        node = loop.node("controller")

        async def program() -> None:
            async with world.client(node) as store:
                fence = await create_and_lead(store)
                for done in (True, False):
                    world.fail_commits(node.name, 1, done=done)
                    with pytest.raises(StoreUnavailable):
                        await store.set_topic_config("orders", {"done": str(done)})
                assert await store.topic_configs(["orders"]) == {"orders": {"done": "True"}}
                await store.check(fence)

        await loop.start(node, program())

    _, history = run_world(main)

    unknown = [event.fields["done"] for event in history.events if event.kind == "store.unknown"]
    assert unknown == [True, False]


def test_process_killed_in_a_transaction_leaves_nothing_of_it() -> None:
    reached: list[int] = []

    async def main(loop: SimLoop, world: SqliteWorld, history: History) -> None:
        for statements in range(20):
            node = loop.node(f"controller {statements}")

            async def program(node: Any = node, statements: int = statements) -> None:
                async with world.client(node) as store:
                    fence = await store.contest(1, take_over=True)
                    if statements == 0:
                        await store.create_topic(ORDERS, THREE_PARTITIONS, {})
                        await store.commit(new_write(ALL), fence)
                    world.kill_in_transaction(node.name, statements)
                    for _ in range(3):
                        stored = await store.leaderships(Names.of(ALL))
                        await store.commit(new_write(ALL, expected=int(stored.partition_epoch[0])), fence)
                        reached.append(statements)

            loop.start(node, program())
            await asyncio.sleep(1)
            if node.state != "killed":
                loop.kill(node)

    _, history = run_world(main)

    reopened = [event for event in history.events if event.kind == "store.reopened"]
    assert len(reopened) == 20
    assert 0 not in reached  # killed at the first statement
    assert 0 < reached.count(19) <= 3  # and at the last ones after all commits


def test_busy_file_changes_nothing_and_is_retried() -> None:
    async def main(loop: SimLoop, world: SqliteWorld, history: History) -> None:
        async with world.client(None) as store:
            world.lock()
            with pytest.raises(Exception, match="database is locked: nothing was changed"):
                await store.contest(1)
            world.unlock()
            assert (await store.contest(1)).epoch == 1

    run_world(main)


@pytest.mark.parametrize(("disk", "remedy"), [("full", "make room"), ("read-only", "let the user")])
def test_failing_disk_rejects_writes_with_a_remedy(disk: Any, remedy: str) -> None:
    async def main(loop: SimLoop, world: SqliteWorld, history: History) -> None:
        async with world.client(None) as store:
            fence = await create_and_lead(store)
            world.set_disk(disk)
            with pytest.raises(StoreUnavailable, match=remedy):
                await store.commit(new_write(ALL, expected=0), fence)
            assert (await store.leaderships(Names.of(ALL))).partition_epoch.tolist() == [0, 0, 0]
            world.set_disk("good")
            await store.commit(new_write(ALL, expected=0), fence)

    run_world(main)


def test_restart_of_the_machine_ends_all_sessions_and_keeps_all_commits() -> None:
    async def main(loop: SimLoop, world: SqliteWorld, history: History) -> None:
        node = loop.node("controller")

        async def program() -> None:
            async with world.client(node) as store:
                await create_and_lead(store)
                await asyncio.sleep(60)

        loop.start(node, program())
        await asyncio.sleep(1)
        world.restart_machine()
        async with world.client(None) as store:
            assert await store.controller() is None
            fence = await store.contest(2)
            with pytest.raises(ControllerMoved):
                await store.check(Fence(epoch=1, version=1))
            assert (await store.commit(new_write(ALL, expected=0), fence)).committed.all()
        assert node.state == "killed"

    _, history = run_world(main)

    # The sessions of both processes, and the end of the first one's.
    what = [event.fields["what"] for event in history.events if event.kind == "store.session"]
    assert what[:3] == ["opened", "expired", "opened"]
