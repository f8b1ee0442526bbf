"""Resource usage of the race: all processes of a contender, and no others."""

import sys
from pathlib import Path

import pytest

from bench.race.usage import cpu_s, peak_mb, wait_calm
from tests.support.processes import HarnessError, Process

LIMIT_S = 60.0
# Two processes: each uses a given part of a core, reports it, and waits to be killed.
BURNED_S = 0.3
FAMILY = f"""
import os, time
told, tell = os.pipe()
child = os.fork()
held = b"x" * 50_000_000
while time.process_time() < {BURNED_S}:
    pass
if child:
    os.read(told, 1)
    print("burned", flush=True)
else:
    os.write(tell, b"x")
time.sleep(600)
"""


def test_children_count_and_others_do_not(tmp_path: Path) -> None:
    with (
        Process([sys.executable, "-c", FAMILY], output=tmp_path / "family.log") as family,
        Process([sys.executable, "-c", "import time; time.sleep(600)"], output=tmp_path / "idle.log") as idle,
    ):
        family.wait_for_line("burned", LIMIT_S)
        used, alone = cpu_s(family.pid), cpu_s(idle.pid)
        memory, small = peak_mb(family.pid), peak_mb(idle.pid)

    assert used >= 2 * BURNED_S - 0.02  # the kernel counts in hundredths of a second
    assert alone < used
    assert memory > 95 > small > 0


def test_wait_for_rest_has_a_time_limit(tmp_path: Path) -> None:
    program = "print('busy', flush=True)\nwhile True: pass"
    with Process([sys.executable, "-c", program], output=tmp_path / "busy.log") as busy:
        busy.wait_for_line("busy", LIMIT_S)
        with pytest.raises(HarnessError, match="did not come to rest"):
            wait_calm([busy.pid], window_s=2.0, limit_s=1.0)  # long enough for its turn on a busy machine
        busy.pause()
        wait_calm([busy.pid], window_s=0.1, limit_s=LIMIT_S)


def test_ended_processes_are_not_counted(tmp_path: Path) -> None:
    with Process([sys.executable, "-c", "pass"], output=tmp_path / "gone.log") as gone:
        gone.wait(LIMIT_S)
        pid = gone.pid

    assert (cpu_s(pid), peak_mb(pid)) == (0, 0)
    wait_calm([pid], window_s=0.01, limit_s=LIMIT_S)
