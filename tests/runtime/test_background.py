"""Exceptions that leave an `async with` block of kactl: those of the block, unchanged."""

import asyncio
import contextlib
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NoReturn

import anyio
import pytest

import kactl
from kactl.cli.serving import embedded
from kactl.config.file import load
from kactl.runtime.background import Background, BlockStack
from kactl.telemetry.event_log import EventLog
from kactl.telemetry.state_change_log.keeper import as_json, kept
from kactl.telemetry.state_change_log.segments import open_segments

pytestmark = pytest.mark.anyio

SESSION_MS = 500


def _controller(folder: Path) -> AbstractAsyncContextManager[Any]:
    return kactl.Controller(0)


def _controller_over_sqlite(folder: Path) -> AbstractAsyncContextManager[Any]:
    return kactl.Controller(0, store=kactl.SqliteStore(folder / "kactl.db"))


def _kept(folder: Path) -> AbstractAsyncContextManager[Any]:
    clock = kactl.SystemClock()
    return kept(EventLog(clock), open_segments(folder / "log", bytes_max=1 << 20, count_max=1), as_json, clock=clock)


@contextlib.asynccontextmanager
async def _with_store(
    make: Callable[[kactl.MemoryStore], AbstractAsyncContextManager[Any]],
) -> AsyncIterator[None]:
    async with kactl.MemoryStore() as store, make(store):
        yield


def _participant(folder: Path) -> AbstractAsyncContextManager[Any]:
    return _with_store(lambda store: kactl.Participant(1, store=store, hub=kactl.MemoryHub(), shutdown_attempts=0))


def _participants(folder: Path) -> AbstractAsyncContextManager[Any]:
    return _with_store(lambda store: kactl.Participants(2, store=store, hub=kactl.MemoryHub(), shutdown_attempts=0))


def _server(folder: Path) -> AbstractAsyncContextManager[Any]:
    text = f"""
        node-id = 0
        [store]
        kind = "sqlite"
        path = "{folder / "kactl.db"}"
        session-timeout = "{SESSION_MS}ms"
        [participants]
        count = 1
        [api]
        listen = "127.0.0.1:0"
    """
    file = folder / "kactl.toml"
    file.write_text(text)
    return embedded(load(file), note=lambda text: None)


BLOCKS = {
    "Controller": _controller,
    "Controller over SQLite": _controller_over_sqlite,
    "Participant": _participant,
    "Participants": _participants,
    "MemoryStore": lambda folder: kactl.MemoryStore(),
    "SqliteStore": lambda folder: kactl.SqliteStore(folder / "kactl.db"),
    "state-change log": _kept,
    "server": _server,
}


@pytest.fixture(params=BLOCKS)
def block(request: pytest.FixtureRequest, tmp_path: Path) -> AbstractAsyncContextManager[Any]:
    block: AbstractAsyncContextManager[Any] = BLOCKS[request.param](tmp_path)
    return block


def _fail(error: BaseException) -> NoReturn:
    raise error


@pytest.mark.parametrize("error", [kactl.TopicExists("orders"), SystemExit(3), ExceptionGroup("own", [OSError()])])
async def test_block_exception_leaves_unchanged(block: AbstractAsyncContextManager[Any], error: BaseException) -> None:
    error.__cause__ = cause = ValueError("cause")

    with pytest.raises(type(error)) as caught:
        async with block:
            _fail(error)

    assert caught.value is error
    assert (error.__cause__, error.__context__) == (cause, None)
    assert not hasattr(error, "__notes__")
    assert [frame.name for frame in traceback.extract_tb(error.__traceback__)][-1] == "_fail"


async def test_cancellation_of_the_host_scope_passes_the_block(block: AbstractAsyncContextManager[Any]) -> None:
    reached = False

    with anyio.CancelScope() as scope:
        async with block:
            scope.cancel()
            await anyio.lowlevel.checkpoint()
            reached = True

    assert scope.cancelled_caught
    assert not reached


async def test_cancellation_of_the_host_task_passes_the_block(block: AbstractAsyncContextManager[Any]) -> None:
    inside = anyio.Event()

    async def host() -> None:
        async with block:
            inside.set()
            await anyio.sleep_forever()

    task = asyncio.create_task(host())
    await inside.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_error_of_a_request_can_be_caught_around_the_controller() -> None:
    try:
        async with (
            kactl.Controller(0) as controller,
            kactl.Participants(1, store=controller.store, hub=controller.hub, session_timeout_ms=SESSION_MS),
        ):
            await controller.wait_active()
            await controller.create_topic("orders", partitions=1, replication_factor=1)
            await controller.create_topic("orders", partitions=1, replication_factor=1)
    except kactl.TopicExists as error:
        caught = error

    assert caught.topic == "orders"


# -- background tasks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raises", [False, True])
async def test_controller_reports_a_failed_background_task_without_a_group(raises: bool) -> None:
    controller = kactl.Controller(0)
    failure, own = _Broken("actor"), kactl.TopicExists("orders")

    async def run() -> None:
        raise failure

    controller.replicas.run = run  # type: ignore[method-assign]

    async def host() -> None:
        async with controller:
            try:
                await anyio.sleep_forever()
            finally:
                if raises:
                    raise own

    with pytest.raises(
        kactl.TopicExists if raises else kactl.ControllerFailed, match=r"orders|_Broken: actor"
    ) as caught:
        await host()

    if raises:
        assert caught.value is own
        assert own.__notes__ == ["an actor of the controller failed, too: _Broken: actor"]
    else:
        assert caught.value.__cause__ is failure


@pytest.mark.parametrize("error", [KeyboardInterrupt(), asyncio.CancelledError()], ids=repr)
async def test_interrupt_in_a_block_leaves_unchanged(
    block: AbstractAsyncContextManager[Any], error: BaseException
) -> None:
    with pytest.raises(type(error)) as caught:
        async with block:
            _fail(error)

    assert caught.value is error


class _Broken(Exception):
    """A bug in a background task."""


async def _break(error: BaseException) -> None:
    raise error


async def _tasks(*failures: BaseException, until: BaseException | None = None) -> None:
    """Runs a block with failing background tasks. Raises `until` after them, or waits to be cancelled."""
    async with Background("test task") as tasks:
        for failure in failures:
            tasks.start_soon(_break, failure)
        if until is None:
            await anyio.sleep_forever()
            return
        with anyio.CancelScope(shield=True):
            await anyio.lowlevel.checkpoint()
        raise until


async def _closing(failure: BaseException, *, block: BaseException | None) -> None:
    """Runs a block with a failing close. The block itself raises `block`."""
    async with BlockStack("the store") as stack:
        stack.push_async_callback(_break, failure)
        if block is not None:
            raise block


async def test_background_failure_ends_the_block_and_leaves_unchanged() -> None:
    failure = _Broken("one")
    failure.__context__ = context = KeyError("context")

    with pytest.raises(_Broken) as caught:
        await _tasks(failure)

    assert caught.value is failure
    assert failure.__context__ is context
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0


@pytest.mark.parametrize("outer", [False, True])
async def test_block_ends_with_the_scope_of_its_tasks_and_without_an_error(outer: bool) -> None:
    after = False
    with anyio.CancelScope() as scope:
        async with Background("tasks") as tasks:

            async def end() -> None:
                tasks.cancel_scope.cancel()
                if outer:
                    scope.cancel()

            tasks.start_soon(end)
            await anyio.sleep_forever()
        after = True

    task = asyncio.current_task()
    assert task is not None
    assert (after, task.cancelling()) == (not outer, 0)


async def test_several_background_failures_leave_as_a_group() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        await _tasks(_Broken("0"), _Broken("1"))

    assert sorted(map(str, caught.value.exceptions)) == ["0", "1"]


async def test_block_exception_leaves_although_a_background_task_failed_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(kactl.TopicExists) as caught:
        await _tasks(_Broken("two"), until=kactl.TopicExists("orders"))

    assert caught.value.__notes__ == ["test task failed, too: _Broken: two"]
    (record,) = (record for record in caplog.records if record.name == "kactl.runtime.background")
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], _Broken)


async def test_keyboard_interrupt_of_closing_replaces_the_block_exception() -> None:
    error = kactl.TopicExists("orders")

    with pytest.raises(KeyboardInterrupt) as caught:
        await _closing(KeyboardInterrupt(), block=error)

    assert caught.value.__context__ is error


async def test_closing_failure_is_added_to_the_block_exception() -> None:
    with pytest.raises(kactl.TopicExists) as caught:
        await _closing(OSError("disk"), block=kactl.TopicExists("orders"))

    assert caught.value.__notes__ == ["the store failed, too: OSError: disk"]


async def test_closing_failure_leaves_if_the_block_succeeded() -> None:
    with pytest.raises(OSError, match="disk"):
        await _closing(OSError("disk"), block=None)


async def test_cancellation_while_closing_is_not_lost() -> None:
    closing, cancelled = anyio.Event(), anyio.Event()

    async def slow_to_end() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                closing.set()
                await cancelled.wait()

    async def host() -> None:
        async with Background("test") as tasks:
            tasks.start_soon(slow_to_end)
            await anyio.lowlevel.checkpoint()
            raise kactl.TopicExists("orders")

    task = asyncio.create_task(host())
    await closing.wait()
    task.cancel()
    cancelled.set()

    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("nested", [False, True])
async def test_second_cancellation_while_closing_ends_the_block(nested: bool) -> None:
    inside, closing = anyio.Event(), anyio.Event()
    left: list[BaseException] = []

    async def hang() -> None:
        closing.set()
        await anyio.sleep_forever()

    async def host() -> None:
        try:
            async with BlockStack("outer") as outer:
                stack = await outer.enter_async_context(BlockStack("inner")) if nested else outer
                await stack.enter_async_context(Background("test"))
                stack.push_async_callback(hang)
                inside.set()
                await anyio.sleep_forever()
        except asyncio.CancelledError as error:
            left.append(error)
            raise

    task = asyncio.create_task(host())
    for reached in (inside, closing):
        await reached.wait()
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    (error,) = left
    assert error.__context__ is not error  # anyio follows the chain to its end


async def test_shielded_task_is_cancelled_when_the_block_ends_and_not_before() -> None:
    events: list[str] = []

    async def work() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            events.append("task is cancelled")

    async def end() -> None:
        with anyio.CancelScope(shield=True):
            await anyio.wait_all_tasks_blocked()
        events.append("block ends")

    with anyio.CancelScope() as scope:
        async with BlockStack("test") as stack:
            tasks = await stack.enter_async_context(Background("test"))
            stack.push_async_callback(end)
            tasks.start_soon(work)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
            await anyio.sleep_forever()

    assert scope.cancelled_caught
    assert events == ["block ends", "task is cancelled"]


async def test_shielded_task_that_was_not_begun_is_cancelled_when_the_block_ends() -> None:
    begun: list[str] = []

    async def work() -> None:
        begun.append("work")
        await anyio.sleep_forever()

    with anyio.fail_after(60):
        async with Background("test") as tasks:
            tasks.start_soon(work)

    assert begun == ["work"]
