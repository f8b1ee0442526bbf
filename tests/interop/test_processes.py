"""Child processes end with the tests, however the tests end, and not earlier."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support.processes import HarnessError, Process, free_port


def sh(script: str, output: Path) -> Process:
    return Process(["sh", "-c", script], output=output)


def gone(pid: int, timeout: float = 10.0) -> bool:
    """Return whether the process, which is not a child of this one, ends within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True  # dead, and not yet reaped by init
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.02)
    return False


def test_line_is_found_if_written_before_or_after(tmp_path: Path) -> None:
    with sh("echo port 17; read forever", tmp_path / "out") as process:
        process.wait_for_line("port", timeout=60)

        assert process.wait_for_line(r"port (\d+)", timeout=60)[1] == "17"


def test_lines_of_an_earlier_run_do_not_count(tmp_path: Path) -> None:
    sh("echo ready", tmp_path / "out").wait(60)

    with sh("sleep 300", tmp_path / "out") as process, pytest.raises(HarnessError, match="did not write 'ready'"):
        process.wait_for_line("ready", timeout=0.2)


def test_early_end_of_a_process_quotes_its_output(tmp_path: Path) -> None:
    process = sh("echo no disk; exit 3", tmp_path / "out")

    with pytest.raises(HarnessError, match=r"ended with 3 before it wrote 'ready'(.|\n)*no disk"):
        process.wait_for_line("ready", timeout=60)


def test_child_of_a_parent_that_ignores_sigint_ends_by_it(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = sh("echo ready; exec sleep 300", tmp_path / "out")
        process.wait_for_line("ready", timeout=60)
    finally:
        signal.signal(signal.SIGINT, before)

    with process:
        process.signal(signal.SIGINT)

        assert process.wait(60) == -signal.SIGINT


def test_error_for_a_missing_program_has_its_name(tmp_path: Path) -> None:
    process = Process(["no-such-program"], output=tmp_path / "out")

    with pytest.raises(HarnessError, match="cannot run no-such-program"):
        process.wait_for_line("ready", timeout=60)


def test_kill_takes_the_whole_group(tmp_path: Path) -> None:
    process = sh("sleep 300 & echo child $!; wait", tmp_path / "out")
    grandchild = int(process.wait_for_line(r"child (\d+)", timeout=60)[1])

    process.kill()
    process.kill()  # harmless

    assert process.wait(60) == -signal.SIGKILL
    assert gone(grandchild)


def test_process_that_ignores_sigterm_is_killed_and_reported(tmp_path: Path) -> None:
    process = sh("trap '' TERM; echo ready; while :; do sleep 0.1; done", tmp_path / "out")
    process.wait_for_line("ready", timeout=60)

    with pytest.raises(HarnessError, match="still runs"):
        process.stop(timeout=0.3)

    assert not process.alive


def test_paused_process_is_alive_and_can_be_stopped(tmp_path: Path) -> None:
    process = sh("trap 'exit 7' TERM; echo ready; while :; do sleep 0.1; done", tmp_path / "out")
    process.wait_for_line("ready", timeout=60)

    process.pause()
    assert process.alive

    assert process.stop(timeout=60) == 7  # exit code of its own handler


def test_child_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    started: list[Process] = []

    def start() -> None:
        started.append(sh("echo up; exec sleep 300", tmp_path / "out"))
        started[0].wait_for_line("up", timeout=60)  # before that it is not bound to a parent yet

    thread = threading.Thread(target=start)
    thread.start()
    thread.join(timeout=20)

    with started[0] as process, pytest.raises(HarnessError, match="still runs"):
        process.wait(0.5)


@pytest.mark.parametrize(
    ("script", "end"),
    [
        ("echo up $$; exec sleep 300", "os.kill(os.getpid(), signal.SIGKILL)"),
        ("sleep 300 & echo up $!; wait", "sys.exit(0)"),  # time to kill the whole group
    ],
    ids=["killed", "exits"],
)
def test_child_ends_with_its_parent(tmp_path: Path, script: str, end: str) -> None:
    parent = f"""
import os, signal, sys
from pathlib import Path
from tests.support.processes import Process
child = Process(["sh", "-c", {script!r}], output=Path({str(tmp_path / "out")!r}))
print(child.wait_for_line(r"up (\\d+)", 10)[1], flush=True)
{end}
"""
    root = Path(__file__).parents[2]

    result = subprocess.run(
        [sys.executable, "-c", parent], capture_output=True, text=True, timeout=30, check=False, cwd=root
    )

    assert result.stdout, result.stderr
    assert gone(int(result.stdout))


def test_ports_are_unique() -> None:
    ports = [free_port() for _ in range(50)]

    assert len(set(ports)) == 50
