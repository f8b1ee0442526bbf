"""Earlier states from snapshots and events: replay, deletions, gaps between controllerships, and damaged files."""

import asyncio
import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio
import pytest

from kactl.admin.schema import PartitionInfo, PartitionQuery
from kactl.admin.views import find_partitions
from kactl.decide.messages.admin import DeleteTopic
from kactl.decide.state.cluster import Cluster
from kactl.model import TopicPartition
from kactl.telemetry.past_states import NotCovered, Period
from kactl.telemetry.state_change_log import snapshots
from kactl.telemetry.state_change_log.as_of import LoggedStates, state_at
from kactl.telemetry.state_change_log.keeper import as_json, kept
from kactl.telemetry.state_change_log.segments import NAME, open_segments
from kactl.telemetry.state_change_log.snapshots import Snapshot
from tests.support.clocks import settle
from tests.support.controller_harness import World, world

pytestmark = pytest.mark.anyio

LARGE: Final = 1 << 20


def snapshot_of(w: World) -> Callable[[], Snapshot | None]:
    def snapshot() -> Snapshot | None:
        if not (w.controller.is_active and w.controller.loop.controllership.ready):
            return None
        return Snapshot.of(w.controller.cluster, seq=w.controller.history.seq, time_ms=w.clock.now_ms())

    return snapshot


async def written(folder: Path, count: int) -> None:
    """Wait until there are so many snapshots; a thread writes them."""
    with anyio.fail_after(60):
        while len(list(snapshots.paths(folder))) < count:  # noqa: ASYNC110 - a thread writes them
            await asyncio.sleep(0)


def _has(folder: Path, event: bytes) -> bool:
    for file in folder.glob(f"{NAME}*"):
        with contextlib.suppress(FileNotFoundError):  # it was renamed meanwhile, and is looked at again
            if event in file.read_bytes():
                return True
    return False


async def logged(folder: Path, seq: int) -> None:
    """Wait until the log contains an event; a thread writes it."""
    with anyio.fail_after(60):
        while not _has(folder, b'"seq":%d,' % seq):  # noqa: ASYNC110 - a thread writes it
            await asyncio.sleep(0)


async def infos(cluster: Cluster | NotCovered) -> dict[str, PartitionInfo]:
    """Returns the partitions by name, without the fields that the log lacks."""
    assert isinstance(cluster, Cluster), cluster
    found = await find_partitions(cluster, PartitionQuery()).infos()
    return {f"{info.topic}-{info.partition}": info for info in found}


def told(of: dict[str, PartitionInfo]) -> dict[str, tuple[object, ...]]:
    return {
        name: (info.state, info.leader, info.leader_epoch, info.replicas, info.isr, info.partition_epoch, info.offline)
        for name, info in of.items()
    }


async def test_every_earlier_state_is_that_of_the_controller_then(tmp_path: Path) -> None:
    async with world(1, 2, 3) as w:
        segments = open_segments(tmp_path, bytes_max=2_500, count_max=1000)
        now: list[tuple[int, dict[str, tuple[object, ...]]]] = []

        async def step() -> None:
            await settle()
            now.append((w.clock.now_ms(), told(await infos(w.controller.cluster))))
            await w.wait(10)
            await logged(tmp_path, w.controller.history.seq)  # each step has a write of its own, and may begin a file

        async with kept(w.controller.history, segments, as_json, clock=w.clock, snapshot=snapshot_of(w)):
            await written(tmp_path, 1)
            await step()
            await w.create("a", [[1, 2, 3], [2, 3, 1], [3]])
            await step()
            await w.stop(3)
            await step()
            await w.create("b", [[2, 1]])
            await step()
            await w.start(3)
            await step()
            await w.controller.reassign({TopicPartition("b", 0): (1, 3)})
            await w.write_isr("b-0", 2, 1, 3)
            await step()
            await w.controller.ask(DeleteTopic("a"))
            await settle()
            await step()
            await w.stop(1, 2)
            await step()

        assert segments.rotations > 3
        assert now[-2][1].keys() == {"b-0"}
        for time_ms, expected in now:
            assert told(await infos(state_at(tmp_path, time_ms + 5, w.clock.now_ms()))) == expected


async def test_time_outside_of_the_controllerships_is_not_covered(tmp_path: Path) -> None:
    async with world(1, 2) as w:
        segments = open_segments(tmp_path, bytes_max=LARGE, count_max=10)
        async with kept(w.controller.history, segments, as_json, clock=w.clock, snapshot=snapshot_of(w)):
            await written(tmp_path, 1)
            begin_ms = w.clock.now_ms()
            await w.wait(1_000)
            await w.create("a", [[1, 2]])
            await w.wait(1_000)
            resigned_ms = w.clock.now_ms()
            await w.controller.resign()
            await written(tmp_path, 2)
            again_ms = w.clock.now_ms()
            await w.wait(1_000)

        now_ms = w.clock.now_ms()
        before = state_at(tmp_path, begin_ms - 1, now_ms)
        assert isinstance(before, NotCovered)
        assert before.covered == (Period(begin_ms, resigned_ms), Period(again_ms, now_ms))
        assert told(await infos(state_at(tmp_path, begin_ms, now_ms))) == {}
        assert set(await infos(state_at(tmp_path, now_ms, now_ms))) == {"a-0"}


async def test_events_of_earlier_versions_keep_the_assignment_of_the_snapshot(tmp_path: Path) -> None:
    async with world(1, 2) as w:
        segments = open_segments(tmp_path, bytes_max=LARGE, count_max=10)
        await w.create("a", [[2, 1]])
        async with kept(w.controller.history, segments, as_json, clock=w.clock, snapshot=snapshot_of(w)):
            await written(tmp_path, 1)
            await w.create("b", [[1, 2]])
            await w.stop(2)
        lines = (tmp_path / NAME).read_text()
        (tmp_path / NAME).write_text(re.sub(r'"replicas":\[[0-9,]*\],', "", lines))

        found = await infos(state_at(tmp_path, w.clock.now_ms(), w.clock.now_ms()))

        assert {name: (info.replicas, info.isr) for name, info in found.items()} == {
            "a-0": ((2, 1), (1,)),
            "b-0": ((1,), (1,)),
        }


async def test_log_without_snapshots_covers_nothing(tmp_path: Path) -> None:
    found = state_at(tmp_path / "none", 5, 10)

    assert found == NotCovered("the log has no states", ())


async def test_damaged_snapshot_is_replaced_by_the_one_before(tmp_path: Path) -> None:
    async with world(1, 2) as w:
        async with kept(
            w.controller.history,
            open_segments(tmp_path, bytes_max=1_000, count_max=1000),
            as_json,
            clock=w.clock,
            snapshot=snapshot_of(w),
        ):
            await w.create("a", [[1, 2], [2, 1]])
            await logged(tmp_path, w.controller.history.seq)
            await w.stop(1)
            await logged(tmp_path, w.controller.history.seq)
            await written(tmp_path, 2)
        files = [path for _, path in snapshots.paths(tmp_path)]
        expected = told(await infos(w.controller.cluster))
        assert len(files) > 1
        files[-1].write_bytes(files[-1].read_bytes()[:200])

        assert told(await infos(state_at(tmp_path, w.clock.now_ms(), w.clock.now_ms()))) == expected


async def test_snapshots_are_removed_with_the_files_of_the_log(tmp_path: Path) -> None:
    async with world(1, 2) as w:
        segments = open_segments(tmp_path, bytes_max=1_000, count_max=3)
        async with kept(w.controller.history, segments, as_json, clock=w.clock, snapshot=snapshot_of(w)):
            for number in range(20):
                await w.create(f"t{number}", [[1, 2]])
                await logged(tmp_path, w.controller.history.seq)

        assert segments.rotations > 6
        assert 2 <= len(list(snapshots.paths(tmp_path))) <= 4
        assert len(await infos(state_at(tmp_path, w.clock.now_ms(), w.clock.now_ms()))) == 20


async def test_state_that_was_read_is_kept_for_the_next_page(tmp_path: Path) -> None:
    async with world(1, 2) as w:
        segments = open_segments(tmp_path, bytes_max=LARGE, count_max=10)
        async with kept(w.controller.history, segments, as_json, clock=w.clock, snapshot=snapshot_of(w)):
            await written(tmp_path, 1)
            await w.create("a", [[1, 2]])
            await w.wait(60_000)
        states = LoggedStates(tmp_path, now_ms=w.clock.now_ms)
        then_ms = w.clock.now_ms() - 30_000

        first = await states.at(then_ms)

        assert await states.at(then_ms) is first
        assert await states.at(then_ms + 1) is not first
