"""`kactl.shards` and `kactl.singleton` in one process, over a store in memory or a file."""

import functools
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

import kactl
from kactl.model.errors import IllegalState

pytestmark = pytest.mark.anyio

PATIENCE_S = 60
POLL_S = 0.01


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - no event signals it
            await anyio.sleep(POLL_S)


class Work:
    """A handler that notes its calls."""

    def __init__(self) -> None:
        self.running: dict[int, kactl.Shard] = {}

    async def __call__(self, shard: kactl.Shard) -> None:
        assert shard.number not in self.running
        self.running[shard.number] = shard
        try:
            await anyio.sleep_forever()
        finally:
            del self.running[shard.number]


@pytest.fixture
def work() -> Work:
    return Work()


async def plain(shard: kactl.Shard) -> None:
    await anyio.sleep_forever()


async def test_handler_runs_for_each_shard_until_the_end_of_the_block(work: Work) -> None:
    async with kactl.shards("jobs", 3, work, store=kactl.MemoryStore()) as worker:
        await until(lambda: len(work.running) == 3)
        assert [shard.name for shard in worker.owned] == ["jobs-0", "jobs-1", "jobs-2"]
        shard = work.running[2]
        assert (shard.number, shard.is_owned, str(shard.token)) == (2, True, "1.0")
        shard.check()

    assert not work.running
    assert not shard.is_owned
    with pytest.raises(kactl.LeadershipLost, match="jobs-2"):
        shard.check()


async def test_shard_guards_a_transaction(work: Work) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        database.executescript(f"CREATE TABLE done (shard INTEGER); {kactl.fencing.ddl('sqlite')}")

        async with kactl.singleton("nightly", work, store=kactl.MemoryStore()):
            await until(lambda: 0 in work.running)
            shard = work.running[0]
            with shard.fenced(database) as tx:
                tx.execute("INSERT INTO done VALUES (?)", (shard.number,))

        assert database.execute("SELECT * FROM done").fetchall() == [(0,)]
        with pytest.raises(kactl.LeadershipLost), shard.fenced(database):
            raise AssertionError("it is not entered")


async def test_plain_function_runs_in_a_thread_and_ends_by_check(caplog: pytest.LogCaptureFixture) -> None:
    running: set[int] = set()

    def blocking(shard: kactl.Shard) -> None:
        running.add(shard.number)
        try:
            while True:
                shard.check()
                time.sleep(POLL_S)
        finally:
            running.remove(shard.number)

    async with kactl.shards("jobs", 50, blocking, store=kactl.MemoryStore()):
        await until(lambda: len(running) == 50)  # more than the threads of anyio

    assert not running
    assert "has failed" not in caplog.text
    assert "has returned" not in caplog.text


async def test_handler_may_end_when_the_shard_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    began = anyio.Event()

    def blocking(shard: kactl.Shard) -> None:
        anyio.from_thread.run_sync(began.set)
        while shard.is_owned:
            time.sleep(POLL_S)

    async with kactl.singleton("nightly", blocking, store=kactl.MemoryStore()):
        await began.wait()

    assert "has returned" not in caplog.text


async def test_handler_that_returns_is_reported_with_what_follows(caplog: pytest.LogCaptureFixture) -> None:
    async def once(shard: kactl.Shard) -> None:
        pass

    async with kactl.singleton("nightly", once, store=kactl.MemoryStore()) as worker:
        await until(lambda: "nightly-0 has returned" in caplog.text)
        assert [shard.is_owned for shard in worker.owned] == [True]

    (record,) = [record for record in caplog.records if "has returned" in record.getMessage()]
    assert "nothing works on it until it moves" in record.getMessage()


async def test_handler_that_raises_is_called_again_and_others_go_on(work: Work) -> None:
    failures = 0

    async def poisoned(shard: kactl.Shard) -> None:
        nonlocal failures
        if shard.number == 1 and failures < 2:
            failures += 1
            raise ConnectionRefusedError("the database is away")
        await work(shard)

    async with kactl.shards("jobs", 3, poisoned, store=kactl.MemoryStore()):
        await until(lambda: {0, 2} <= work.running.keys())
        others = [work.running[0].token, work.running[2].token]
        await until(lambda: 1 in work.running)
        assert [work.running[0].token, work.running[2].token] == others


async def test_handler_class_prepares_and_follows() -> None:
    calls: list[str] = []

    class Warm(kactl.PartitionHandler):
        async def follow(self, follower: kactl.Follower) -> None:
            calls.append("follow")
            await anyio.sleep_forever()

        async def lead(self, leader: kactl.Leader) -> None:
            calls.append("lead")
            await anyio.sleep_forever()

    store = kactl.MemoryStore()
    async with kactl.singleton("warm", Warm, store=store, standby=1), kactl.singleton("warm", Warm, store=store):
        await until(lambda: sorted(calls) == ["follow", "lead"])


async def test_workers_of_one_store_share_shards_and_a_controller(tmp_path: Path) -> None:
    ours, theirs, other = Work(), Work(), Work()
    file = tmp_path / "folder" / "workers.db"

    async with kactl.shards("jobs", 4, ours, store=file) as first:
        await until(lambda: len(ours.running) == 4)
        async with kactl.shards("jobs", 4, theirs, store=str(file)), kactl.singleton("other", other, store=file):
            await until(lambda: len(ours.running) == len(theirs.running) == 2)
            await until(lambda: len(other.running) == 1)
            assert not ours.running.keys() & theirs.running.keys()
            assert len(first.participant.live_brokers) == 3
        await until(lambda: len(ours.running) == 4)


async def test_store_of_relative_path_is_that_of_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    worker = kactl.singleton("nightly", plain)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")

    async with worker:
        pass

    assert os.listdir() == []
    assert (tmp_path / ".kactl" / "workers.db").exists()


async def test_larger_count_adds_shards_and_a_smaller_one_warns(caplog: pytest.LogCaptureFixture) -> None:
    store, older, newer = kactl.MemoryStore(), Work(), Work()

    def expected(message: str) -> bool:
        return any(message in record.getMessage() for record in caplog.records)

    async with kactl.shards("jobs", 2, older, store=store):
        await until(lambda: len(older.running) == 2)
        async with kactl.shards("jobs", 6, newer, store=store):
            await until(lambda: len(older.running) + len(newer.running) == 6)
            await until(lambda: len(older.running) == 3)
            assert expected("jobs has more than the 2 shards of this program")
        await until(lambda: len(older.running) == 6)
    assert len([record for record in caplog.records if "more than the 2 shards" in record.getMessage()]) == 1


async def test_name_of_another_kind_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "workers.db"
    async with (
        kactl.Controller(1, store=kactl.SqliteStore(file)) as controller,
        kactl.Participant(2, store=controller.store, hub=controller.hub) as participant,
    ):
        await participant.ensure_topic("orders", partitions=2)

    with pytest.raises(kactl.TopicExists, match=r"is of the kind replicated, .* under another name"):
        async with kactl.shards("orders", 2, plain, store=file):
            raise AssertionError("it is not entered")

    async with kactl.shards("jobs", 2, plain, store=file):
        pass


async def test_object_is_entered_once_at_a_time_and_again_later(work: Work) -> None:
    worker = kactl.singleton("nightly", work, store=kactl.MemoryStore())

    with pytest.raises(IllegalState, match="has not joined"):
        worker.owned  # noqa: B018
    for _ in range(2):
        async with worker:
            await until(lambda: 0 in work.running)
            with pytest.raises(IllegalState, match="is open already"):
                await worker.start()


async def test_start_and_aclose_work_in_any_task(work: Work) -> None:
    worker = kactl.singleton("nightly", work, store=kactl.MemoryStore())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.start)
    await until(lambda: 0 in work.running)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.aclose)
    await worker.aclose()

    assert not work.running


async def test_cancelled_start_leaves_nothing(work: Work) -> None:
    network = kactl.TcpNetwork(controllers=["127.0.0.1:1"])
    worker = kactl.singleton("nightly", work, network=network)

    with anyio.move_on_after(0.2) as scope:
        await worker.start()

    assert scope.cancelled_caught
    await worker.aclose()


async def returned() -> None: ...


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: kactl.shards("jobs", 2, plain(None)), kactl.BadRequest, "is a call of plain"),  # type: ignore[arg-type]
        (lambda: kactl.shards("jobs", 2, returned), kactl.BadRequest, "async def work"),  # type: ignore[arg-type]
        (lambda: kactl.shards("jobs", 2, 5), kactl.BadRequest, "not a callable"),  # type: ignore[arg-type]
        (lambda: kactl.shards("jobs", 0, plain), kactl.BadRequest, "count: 0"),
        (lambda: kactl.shards("jobs", True, plain), kactl.BadRequest, "count: True"),
        (lambda: kactl.shards("jobs", "2", plain), kactl.BadRequest, "count: '2'"),  # type: ignore[arg-type]
        (lambda: kactl.shards("my jobs", 2, plain), kactl.BadRequest, "topic: 'my jobs'"),
        (lambda: kactl.shards(2, 2, plain), kactl.BadRequest, "topic: 2"),  # type: ignore[arg-type]
        (lambda: kactl.shards("jobs", 2, plain, controllers="a:1"), kactl.BadRequest, "give a list"),
        (lambda: kactl.shards("jobs", 2, plain, store="f", controllers=["a:1"]), kactl.BadRequest, "run elsewhere"),
        (lambda: kactl.shards("jobs", 2, plain, sotre="f"), TypeError, "'sotre' is no keyword.*store"),  # type: ignore[call-arg]
    ],
)
async def test_bad_arguments_are_refused_at_once(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


async def test_partial_function_is_a_handler(work: Work) -> None:
    async def with_setting(setting: int, shard: kactl.Shard) -> None:
        assert setting == 7
        await work(shard)

    async with kactl.singleton("nightly", functools.partial(with_setting, 7), store=kactl.MemoryStore()):
        await until(lambda: 0 in work.running)


@pytest.mark.parametrize("path", ["file/workers.db", "folder"])
async def test_place_where_no_store_can_be_is_named(path: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()

    with pytest.raises(kactl.KactlError, match=str(tmp_path / path)):
        async with kactl.singleton("nightly", plain, store=tmp_path / path):
            raise AssertionError("it is not entered")


def test_a_worker_is_made_before_the_rest_of_kactl_is_imported() -> None:
    """Ctrl-C before `kactl.run` has begun ends in a traceback: what takes long is imported later."""
    program = (
        "import sys, kactl\n"
        "async def work(shard: kactl.Shard) -> None: ...\n"
        "kactl.run, kactl.shards('jobs', 12, work), kactl.singleton('nightly', work)\n"
        "print({'numpy', 'kactl.actors.system', 'kactl.participant.participant'} & sys.modules.keys())\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout == "set()\n"
