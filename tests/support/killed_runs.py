"""Files in memory of test runs that were killed.

pytest takes a run for a living one for three days if it has left its lock. Five killed runs with real brokers fill the
memory of a machine with 24 GiB, and the kernel kills the tests of the next one.
"""

import shutil
from pathlib import Path


def remove_files(memory: Path) -> None:
    """Removes the folders of runs whose process has ended without removing its lock."""
    for lock in memory.glob("pytest-of-*/pytest-*/.lock"):
        try:
            process = int(lock.read_text())
        except (OSError, ValueError):
            continue  # another run removes it, or has just made it
        if not Path(f"/proc/{process}").exists():
            shutil.rmtree(lock.parent, ignore_errors=True)


def available_bytes(memory: Path) -> int:
    """Returns how much can be written: what the file system has free is more than the machine has if others fill it."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return min(shutil.disk_usage(memory).free, int(fields["MemAvailable"].split()[0]) * 1024)
