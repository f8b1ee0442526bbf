"""Injected time sources, so that every run can be replayed.

Three clocks with different purposes:

wall clock   for timestamps of events. It may be set forward or back at any moment.
monotonic    for durations inside one process.
boot time    for leases: shared by all processes of the host, never set, and it advances while the host is suspended.

No lease, timeout or session may depend on the wall clock.
"""

import functools
import os
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import anyio

# A random id that the kernel draws at every boot; all containers of a host read the same one.
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
# What a time namespace adds to the host's clocks: that of new children, which may be another than that of this process.
_TIME_OFFSETS: Final = Path("/proc/self/timens_offsets")
_NAMESPACES: Final = Path("/proc/self/ns")
UNKNOWN_BOOT: Final = ""
UNKNOWN_CLOCK: Final = "?"


class BootTime(NamedTuple):
    """A reading of the boot-time clock. Readings with different `boot` cannot be compared.

    Attributes:
        boot: the boot of the host that the reading belongs to; UNKNOWN_BOOT where the platform has no name for it;
            UNKNOWN_CLOCK if this process may be in a time namespace whose offset it cannot read.
        ms: since that boot, time in suspend included.
    """

    boot: str
    ms: int


class Clock(Protocol):
    """Source of time."""

    def now_ms(self) -> int:
        """Returns the wall clock, ms since 1970. It may jump: never use it for a lease or a timeout."""

    def monotonic_ms(self) -> float:
        """Returns a time that never goes back; only differences have a meaning."""

    def boot_time(self) -> BootTime:
        """Returns the clock for leases; it never goes back within one boot."""

    def lease_ns(self) -> int:
        """Returns the same clock with its full resolution, for leases that only this process reads; only differences
        have a meaning."""

    async def sleep_ms(self, delay_ms: float) -> None:
        """Wait for `delay_ms`; not at all if it is negative."""


class SystemClock:
    """The machine's clocks.

    Boot time is Linux's CLOCK_BOOTTIME with the offset of a time namespace taken out, so that containers which share a
    file agree. Elsewhere it is the system-wide monotonic clock, whose boot is unknown and which may stand still during
    suspend: leases then outlive a suspend by its length, and those of an earlier boot by at most their timeout.
    """

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000

    def boot_time(self) -> BootTime:
        boot, offset_ns = _boot()
        return BootTime(boot, (_boot_time_ns() - offset_ns) // 1_000_000)

    # `Leader.check` calls it for every protected step of an application.
    if hasattr(time, "CLOCK_BOOTTIME"):

        def lease_ns(self) -> int:
            return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    else:

        def lease_ns(self) -> int:
            return time.monotonic_ns()

    async def sleep_ms(self, delay_ms: float) -> None:
        # A time that has passed since the caller has read the clock.
        await anyio.sleep(max(delay_ms, 0.0) / 1000)


def _boot_time_ns() -> int:
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return time.monotonic_ns()


@functools.cache
def _boot() -> tuple[str, int]:
    """Returns the id of this boot, and the offset of the time namespace in ns. Both are constant in a process."""
    offset_ns = _offset_ns()
    if offset_ns is None:
        return UNKNOWN_CLOCK, 0
    try:
        return _BOOT_ID.read_text().strip(), offset_ns
    except (OSError, UnicodeDecodeError):
        return UNKNOWN_BOOT, offset_ns


# A child may be in another time namespace.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_boot.cache_clear)


def _offset_ns() -> int | None:
    """Returns the offset of this process's time namespace; None if it is unknown, as in a container without /proc."""
    if sys.platform != "linux":
        return 0  # there are no time namespaces
    try:
        if not (_NAMESPACES / "time").is_symlink() and (_NAMESPACES / "mnt").is_symlink():
            return 0  # nor has this kernel any
        if os.readlink(_NAMESPACES / "time") != os.readlink(_NAMESPACES / "time_for_children"):
            return None
        return boot_offset_ns(_TIME_OFFSETS.read_text())
    except (OSError, UnicodeDecodeError):
        return None


def boot_offset_ns(text: str) -> int | None:
    """Returns the offset of CLOCK_BOOTTIME in the text of `/proc/self/timens_offsets`; None if it is not listed.

    Source: time_namespaces(7). A line reads `boottime <seconds> <nanoseconds>`; seconds may be negative.
    """
    for line in text.splitlines():
        match line.split():
            case ["boottime", seconds, nanoseconds]:
                return int(seconds) * 1_000_000_000 + int(nanoseconds)
    return None
