"""Blocks that are left in another task than they were entered in, and objects that are started without a block."""

import asyncio
import contextlib
import copy
import pickle
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
import trio

import kactl
from kactl.model.errors import IllegalState
from kactl.runtime.background import Background

pytestmark = pytest.mark.anyio

PATIENCE_S = 60


class Shard(kactl.PartitionHandler):
    async def lead(self, leader: kactl.Leader) -> None:
        await anyio.sleep_forever()


@contextlib.asynccontextmanager
async def cluster() -> AsyncIterator[kactl.Controller]:
    async with (
        kactl.Controller(0) as controller,
        kactl.Participant(1, store=controller.store, hub=controller.hub, handler=Shard),
        kactl.Participants(2, network=controller.hub),
        kactl.Spectator(hub=controller.hub) as spectator,
        kactl.Spectator(hub=controller.hub),
    ):
        await controller.ensure_topic("shards", assignment={0: [1]}, wait="led")
        await spectator.wait_ready()
        yield controller


async def _entered(stack: contextlib.AsyncExitStack) -> kactl.Controller:
    controller = await stack.enter_async_context(kactl.Controller(0))
    hub = controller.hub
    await stack.enter_async_context(kactl.Participant(1, store=controller.store, hub=hub, handler=Shard))
    await stack.enter_async_context(kactl.Participant(2, network=hub))
    await stack.enter_async_context(kactl.Spectator(hub=hub))
    await controller.ensure_topic("shards", assignment={0: [1]}, wait="led")
    return controller


async def test_block_is_left_in_another_task() -> None:
    stack = contextlib.AsyncExitStack()

    with anyio.fail_after(PATIENCE_S):
        controller = await asyncio.create_task(_entered(stack))
        assert [view.leader for view in controller.partitions_of("shards")] == [1]
        await asyncio.create_task(stack.aclose())

    assert not controller.is_open


def test_block_is_left_in_another_run_of_the_loop() -> None:
    stack = contextlib.AsyncExitStack()

    with asyncio.Runner() as runner:
        controller = runner.run(_entered(stack))
        runner.run(stack.aclose())

    assert not controller.is_open


async def test_generator_with_a_block_is_closed_in_another_task() -> None:
    """As fixtures of pytest, dependencies of FastAPI and cleanup contexts of aiohttp are."""

    async def generate() -> AsyncIterator[kactl.Controller]:
        async with kactl.Controller(0) as controller:
            yield controller

    generator = generate()
    with anyio.fail_after(PATIENCE_S):
        controller: kactl.Controller = await asyncio.create_task(anext(generator))  # type: ignore[arg-type]
        await asyncio.create_task(generator.aclose())  # type: ignore[attr-defined]

    assert not controller.is_open


async def test_objects_are_started_and_closed_without_a_block() -> None:
    controller = kactl.Controller(0)
    participant = kactl.Participant(1, network=controller.hub, handler=Shard)
    spectator = kactl.Spectator(hub=controller.hub)

    with anyio.fail_after(PATIENCE_S):
        for each in (controller, participant, spectator):
            await asyncio.create_task(each.start())
        await participant.ensure_topic("shards", assignment={0: [1]}, wait="led")
        await spectator.wait_ready()
        for each in (spectator, participant, controller):
            await asyncio.create_task(each.aclose())
            await each.aclose()

    assert not controller.is_open


async def test_participant_starts_again_as_a_new_one() -> None:
    async with kactl.Controller(0) as controller:
        participant = kactl.Participant(1, network=controller.hub)
        seen = []

        for _ in range(2):
            await participant.start()
            seen.append((await controller.store.brokers())[1].incarnation)
            await participant.aclose()

    assert seen[0][:12] != seen[1][:12]


async def test_failed_start_leaves_nothing_open() -> None:
    participant = kactl.Participant(1, network=kactl.MemoryHub(), start_timeout_ms=0)

    for _ in range(2):
        with pytest.raises(kactl.KactlError) as caught:
            await participant.start()
        assert not isinstance(caught.value, IllegalState)

    await participant.aclose()


@pytest.mark.parametrize("way", ["start", "block", "at once"])
async def test_second_entry_at_the_same_time_is_refused(way: str) -> None:
    async with kactl.Controller(0) as controller:
        participant = kactl.Participant(1, network=controller.hub)
        spectator = kactl.Spectator(hub=controller.hub)
        for each in (participant, spectator):
            if way == "at once":
                results = await asyncio.gather(each.__aenter__(), each.__aenter__(), return_exceptions=True)
                (refused,) = [result for result in results if isinstance(result, Exception)]
                assert "use one object" in str(refused) or "make a new" in str(refused)
            else:
                await (each.start() if way == "start" else each.__aenter__())
                with pytest.raises(IllegalState, match=r"use one object|make a new"):
                    async with each:
                        pass
            await each.aclose()


@pytest.mark.parametrize("send", [pickle.dumps, copy.copy, copy.deepcopy])
async def test_objects_are_not_copied(send: Any) -> None:
    hub = kactl.MemoryHub()

    for each in (kactl.Controller(0), kactl.Participant(1, hub=hub), kactl.Spectator(hub=hub)):
        with pytest.raises(TypeError, match="cannot be copied or sent to another process"):
            send(each)


async def test_failure_without_a_block_does_not_cancel_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    controller = kactl.Controller(0)
    failed = asyncio.Event()

    async def run() -> None:
        failed.set()
        raise OSError("a bug")

    controller.replicas.run = run  # type: ignore[method-assign]
    await controller.start()
    await failed.wait()
    with anyio.CancelScope(shield=True):
        await anyio.wait_all_tasks_blocked()

    assert "has failed, which is raised when it is closed" in caplog.text
    with pytest.raises(kactl.ControllerFailed, match="a bug"):
        await controller.aclose()


async def test_tasks_that_ignore_their_cancellation_do_not_keep_the_block(caplog: pytest.LogCaptureFixture) -> None:
    release = asyncio.Event()

    async def swallow() -> None:
        while not release.is_set():
            with contextlib.suppress(BaseException):
                await release.wait()

    async with Background("the application", end_s=0.01) as tasks:
        tasks.start_soon(swallow)

    assert "the application ignores its cancellation" in caplog.text
    release.set()


def test_trio_is_refused_with_the_remedy() -> None:
    async def main(make: Any) -> None:
        async with make():
            pass

    hub = kactl.MemoryHub()
    for make in (
        lambda: kactl.Controller(0),
        lambda: kactl.Participant(1, hub=hub),
        lambda: kactl.Spectator(hub=hub),
        kactl.MemoryStore,
    ):
        with pytest.raises(IllegalState, match="anyio_backend"):
            trio.run(main, make)


# -- stores of participants


async def test_store_that_is_not_open_is_opened_by_its_participants(tmp_path: Any) -> None:
    store = kactl.SqliteStore(tmp_path / "kactl.db")
    hub = kactl.MemoryHub()

    with anyio.fail_after(PATIENCE_S):
        async with kactl.Participant(1, store=store, hub=hub), kactl.Participant(2, store=store, hub=hub):
            assert set(await store.brokers()) == {1, 2}
        was_closed = not store.is_open
        async with store:
            async with kactl.Participant(1, store=store, hub=hub):
                pass
            assert store.is_open

    assert was_closed
