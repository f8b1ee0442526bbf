"""Leases that were measured by the clock of another boot, or of a container, are watched before they count as over."""

import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel
import pytest

from kactl.model.errors import StoreError
from kactl.runtime.clock import UNKNOWN_CLOCK
from kactl.stores.sqlite import SqliteStore
from kactl.stores.sqlite.lease import POLL_MS
from tests.support import tree
from tests.support.clocks import ManualClock, settle
from tests.support.processes import Process
from tests.support.store_clients import broker_info

from .maintenance import poll_for

pytestmark = pytest.mark.anyio

TIMEOUT_MS: Final = 3_000
PATIENCE_S: Final = 60.0


class Entering:
    """A store that another boot's process enters: the time that this takes is that of its clock."""

    def __init__(self, path: Path, clock: ManualClock) -> None:
        self.clock = clock
        self.store = SqliteStore(path, clock=clock, session_timeout_ms=TIMEOUT_MS)
        self.entered = False
        self.refused = ""
        self._leave = anyio.Event()

    async def run(self) -> None:
        try:
            async with self.store:
                self.entered = True
                await self._leave.wait()
        except StoreError as error:
            self.refused = str(error)

    def leave(self) -> None:
        self._leave.set()

    async def pass_time(self, total_ms: float, *others: SqliteStore) -> None:
        """Advances its clock in steps of one poll; the other stores share the event loop, and not the clock."""
        for _ in range(int(total_ms / POLL_MS)):
            if self.entered or self.refused:
                return
            await self._idle()
            await self.clock.advance(POLL_MS)
            for other in others:
                await poll_for(clock_of(other), POLL_MS, other)

    async def _idle(self) -> None:
        """Waits until its thread has finished what it began."""
        while not (self.clock.sleepers or self.entered or self.refused):
            await anyio.lowlevel.checkpoint()
        await settle()


def clock_of(store: SqliteStore) -> ManualClock:
    clock = store._lease._clock
    assert isinstance(clock, ManualClock)
    return clock


@pytest.fixture
async def store(tmp_path: Path, clock: ManualClock) -> AsyncIterator[SqliteStore]:
    async with SqliteStore(tmp_path / "kactl.db", clock=clock, session_timeout_ms=TIMEOUT_MS) as store:
        yield store


def second_clock(boot: str = "second boot", ahead_ms: float = 0) -> ManualClock:
    clock = ManualClock()
    clock.boot = boot
    clock.jump(ahead_ms)
    return clock


async def test_file_with_live_leases_of_another_boot_is_refused(store: SqliteStore) -> None:
    fence = await store.contest(1)
    entering = Entering(store.path, second_clock())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(entering.run)
        await entering.pass_time(2 * TIMEOUT_MS, store)

    assert "open in another boot" in entering.refused
    assert "first boot" in entering.refused
    assert "second boot" in entering.refused
    await poll_for(clock_of(store), 2 * TIMEOUT_MS, store)
    await store.check(fence)
    assert store.trouble == ""


@pytest.mark.parametrize("ahead_ms", [3_600_000, -3_600_000])
async def test_file_with_live_leases_by_another_clock_is_refused(store: SqliteStore, ahead_ms: float) -> None:
    """In a time namespace whose offset cannot be read."""
    fence = await store.contest(1)
    entering = Entering(store.path, second_clock(UNKNOWN_CLOCK, ahead_ms))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(entering.run)
        await entering.pass_time(2 * TIMEOUT_MS, store)

    assert "by another clock" in entering.refused
    assert "/proc mounted" in entering.refused
    await store.check(fence)


async def test_silent_leases_of_another_boot_end_after_their_timeout(store: SqliteStore) -> None:
    """The file is open elsewhere, so that their owner may live."""
    session = await store.new_session(TIMEOUT_MS)
    await session.register(broker_info(1))
    await store.contest(1)
    entering = Entering(store.path, second_clock())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(entering.run)
        await entering.pass_time(TIMEOUT_MS - 2 * POLL_MS)
        early = entering.entered

        await entering.pass_time(3 * POLL_MS)
        await entering._idle()

        assert not early
        assert entering.entered
        assert await entering.store.controller() is None
        assert await entering.store.brokers() == {}
        assert (await entering.store.contest(2)).epoch == 2
        entering.leave()


async def test_unknown_clocks_that_agree_share_a_file(store: SqliteStore) -> None:
    """Containers without /proc that are in no time namespace."""
    fence = await store.contest(1)
    clock = second_clock(UNKNOWN_CLOCK)
    async with SqliteStore(store.path, clock=clock, session_timeout_ms=TIMEOUT_MS) as other:
        for _ in range(3 * TIMEOUT_MS // POLL_MS):
            await poll_for(clock, POLL_MS, other)
            await poll_for(clock_of(store), POLL_MS, store)

        await store.check(fence)
        assert (await other.new_session(TIMEOUT_MS)).bound.kind == "witnessed"


async def test_lease_that_ends_is_found_by_a_clock_without_a_name(store: SqliteStore) -> None:
    await store.contest(1)
    clock = second_clock(UNKNOWN_CLOCK)
    async with SqliteStore(store.path, clock=clock, session_timeout_ms=TIMEOUT_MS) as other:
        await poll_for(clock, 2 * TIMEOUT_MS + 2 * POLL_MS, other)

        assert await other.controller() is None


# -- real containers

BOOT_ID: Final = "11111111-2222-3333-4444-555555555555"
OWN_BOOT: Final = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'
NO_PROC: Final = 'mount -t tmpfs none /proc && exec "$@"'
IN_OWN_BOOT: Final = ("unshare", "--mount", "sh", "-c", OWN_BOOT)
WITHOUT_PROC: Final = ("unshare", "--mount", "sh", "-c", NO_PROC)
OTHER_CLOCK: Final = ("unshare", "--time", "--boottime", "3600", "--mount", "sh", "-c", NO_PROC)
OTHER_CLOCK_WITH_PROC: Final = ("unshare", "--time", "--boottime", "3600", "--mount", "sh", "-c", 'exec "$@"')
needs_root = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="mounts need root and unshare")


class Container:
    """Starts `sqlite_visitor` in namespaces."""

    def __init__(self, folder: Path, path: Path) -> None:
        self._folder = folder
        self._path = path
        (folder / "boot_id").write_text(f"{BOOT_ID}\n")

    def start(self, name: str, command: tuple[str, ...], *arguments: str) -> Process:
        prefix = [*command, str(self._folder / "boot_id")] if command else []
        visitor = [sys.executable, "-m", "tests.stores.sqlite_visitor", str(self._path), *arguments]
        return Process([*prefix, *visitor], output=self._folder / f"{name}.txt", cwd=tree.ROOT)


@pytest.fixture
def containers(tmp_path: Path) -> Container:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    return Container(tmp_path, folder / "kactl.db")


@needs_root
@pytest.mark.parametrize("command", [IN_OWN_BOOT, OTHER_CLOCK], ids=["own-boot-id", "own-clock-without-proc"])
async def test_container_is_refused_while_the_host_uses_the_file(
    containers: Container, command: tuple[str, ...]
) -> None:
    first = containers.start("first", (), "1", "stay")
    first.wait_for_line("stays", PATIENCE_S)

    second = containers.start("second", command, "2")
    code = second.wait(PATIENCE_S)
    third = containers.start("third", (), "3")

    assert code == 0, second.text
    assert (
        f"(its sessions have the boot id {Path('/proc/sys/kernel/random/boot_id').read_text().strip()}" in second.text
    )
    assert (BOOT_ID if command is IN_OWN_BOOT else "and this process has none") in second.text
    assert third.wait(PATIENCE_S) == 0
    assert "not elected\ncontroller 1 1\n" in third.text
    first.kill()


@needs_root
@pytest.mark.parametrize("command", [WITHOUT_PROC, OTHER_CLOCK_WITH_PROC], ids=["without-proc", "own-clock"])
async def test_container_of_the_same_clock_shares_the_file(containers: Container, command: tuple[str, ...]) -> None:
    first = containers.start("first", (), "1", "stay")
    first.wait_for_line("stays", PATIENCE_S)

    second = containers.start("second", command, "2")

    assert second.wait(PATIENCE_S) == 0
    assert "not elected\ncontroller 1 1\n" in second.text
    first.kill()


@needs_root
async def test_start_after_a_crash_of_the_host_waits_for_no_lease(containers: Container) -> None:
    first = containers.start("first", (), "1", "stay")
    first.wait_for_line("stays", PATIENCE_S)
    first.kill()

    second = containers.start("second", IN_OWN_BOOT, "2")

    assert second.wait(PATIENCE_S) == 0
    assert "elected 2\ncontroller 2 2\n" in second.text
    assert "watched" not in second.text
