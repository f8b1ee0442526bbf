"""System clocks and the clocks of the tests."""

import os
import subprocess
import sys
import time
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from kactl.runtime import clock as clock_module
from kactl.runtime.clock import UNKNOWN_BOOT, UNKNOWN_CLOCK, Clock, SystemClock, boot_offset_ns
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio


async def test_sleepers_wake_in_the_order_of_their_deadlines() -> None:
    clock = ManualClock()
    woken: list[tuple[str, float]] = []

    async def sleep(name: str, delay_ms: float, again_ms: float = 0) -> None:
        await clock.sleep_ms(delay_ms)
        woken.append((name, clock.monotonic_ms()))
        if again_ms:
            await sleep(name, again_ms)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sleep, "late", 30)
        tasks.start_soon(sleep, "early", 10, 15)
        await clock.advance(100)

    assert woken == [("early", 10), ("early", 25), ("late", 30)]
    assert clock.monotonic_ms() == 100


async def test_sleepers_do_not_wake_early() -> None:
    clock: Clock = ManualClock(start_ms=5)
    assert isinstance(clock, ManualClock)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(clock.sleep_ms, 10)
        await clock.advance(9)

        assert clock.sleepers == 1
        assert clock.now_ms() == 14

        tasks.cancel_scope.cancel()
    assert clock.sleepers == 0


async def test_time_that_has_passed_already_is_not_waited_for() -> None:
    await SystemClock().sleep_ms(-0.1)


async def test_settle_waits_for_chains_of_tasks() -> None:
    first, second, done = anyio.Event(), anyio.Event(), []

    async def relay() -> None:
        await first.wait()
        await anyio.lowlevel.checkpoint()
        second.set()

    async def last() -> None:
        await second.wait()
        done.append(True)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(relay)
        tasks.start_soon(last)
        first.set()
        await settle()

        assert done


def test_boot_time_is_that_of_the_host() -> None:
    uptime_ms = float(Path("/proc/uptime").read_text().split()[0]) * 1000

    now = SystemClock().boot_time()

    assert now.boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert uptime_ms - 10 <= now.ms <= uptime_ms + 60_000


def test_boot_time_of_a_time_namespace_is_that_of_the_host() -> None:
    """As in a container with its own boot time, one hour ahead."""
    command = ("unshare", "--time", "--boottime", "3600", sys.executable, "-c")
    code = "from kactl.runtime.clock import SystemClock; print(*SystemClock().boot_time())"
    ran = subprocess.run([*command, code], capture_output=True, text=True, timeout=60, check=False)
    if "unshare:" in ran.stderr:
        pytest.skip(f"no time namespace can be made here: {ran.stderr.strip()}")

    boot, ms = ran.stdout.split()
    now = SystemClock().boot_time()

    assert boot == now.boot
    assert 0 <= now.ms - int(ms) < 60_000


@pytest.mark.parametrize(
    ("text", "offset_ns"),
    [
        ("monotonic           0         0\nboottime            0         0\n", 0),
        ("monotonic           0         0\nboottime         3600         5\n", 3_600_000_000_005),
        ("monotonic           7         0\nboottime          -10 999999999\n", -9_000_000_001),
        ("", None),
    ],
)
def test_offset_of_a_time_namespace_is_read(text: str, offset_ns: int | None) -> None:
    assert boot_offset_ns(text) == offset_ns


NO_TIME_NAMESPACE = "no time namespace can be made here"
# A process whose next children, and not itself, are in another time namespace: its own offset is not listed.
UNSHARED = "import ctypes; assert ctypes.CDLL(None).unshare(0x80) == 0"
HIDDEN = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "-")


@pytest.mark.parametrize(("command", "before"), [((), UNSHARED), (HIDDEN, "")], ids=["unshared", "without-proc"])
def test_clock_with_an_unknown_offset_has_no_name(command: tuple[str, ...], before: str) -> None:
    code = f"{before}\nfrom kactl.runtime.clock import SystemClock; print(SystemClock().boot_time().boot)"
    ran = subprocess.run(
        [*command, sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    if "unshare:" in ran.stderr or "AssertionError" in ran.stderr:
        pytest.skip(f"{NO_TIME_NAMESPACE}: {ran.stderr.strip()}")

    assert ran.stdout.strip() == UNKNOWN_CLOCK, ran.stderr


def test_forked_child_reads_its_own_boot() -> None:
    SystemClock().boot_time()
    child = os.fork()
    if child == 0:
        os._exit(clock_module._boot.cache_info().currsize)

    assert os.waitpid(child, 0)[1] == 0
    assert clock_module._boot.cache_info().currsize == 1


def test_missing_boot_time_falls_back_to_the_monotonic_clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As on a kernel without time namespaces."""
    (tmp_path / "mnt").symlink_to("mnt:[1]")
    monkeypatch.setattr(clock_module, "_NAMESPACES", tmp_path)
    monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    monkeypatch.setattr(clock_module, "_BOOT_ID", Path("/nowhere"))
    monkeypatch.setattr(clock_module, "_TIME_OFFSETS", Path("/nowhere"))
    clock_module._boot.cache_clear()

    before, now, after = time.monotonic_ns(), SystemClock().boot_time(), time.monotonic_ns()
    clock_module._boot.cache_clear()

    assert now.boot == UNKNOWN_BOOT
    assert before // 1_000_000 <= now.ms <= after // 1_000_000


def test_lease_clock_is_the_boot_time_of_this_process() -> None:
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    now = SystemClock().lease_ns()

    assert before <= now <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)
