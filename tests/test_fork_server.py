"""Programs that are forked are like those that an interpreter starts."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import tree
from tests.support.fork_server import Program
from tests.support.processes import HarnessError, Process

# A module that prints its arguments and environment, and whose imports are done before.
MODULE = """
import os, resource, signal, sys
print("argv", sys.argv[1:], __name__, sys.modules["__main__"].__dict__ is globals())
print("env", sorted(os.environ))
print("path", sys.path[0] == os.getcwd(), os.getcwd())
print("group", os.getpgid(0) == os.getpid())
print("descriptors", sorted(map(int, os.listdir("/proc/self/fd")))[:-1], resource.getrlimit(resource.RLIMIT_NOFILE)[0])
print("stdin", sys.stdin.read())
print("sigchld", signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL, flush=True)
exec(sys.argv[1])
"""


def started(folder: Path, code: str, *, descriptors_max: int | None = None) -> Process:
    (folder / "program_of_a_test.py").write_text(MODULE)
    program = Program("program_of_a_test", [code], ["json"], descriptors_max)
    return Process(program, output=folder / "out", env={"PYTHONPATH": "", "ADDED": "1"}, cwd=folder)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_forked_program_starts_like_one_of_an_interpreter(tmp_path: Path) -> None:
    process = started(tmp_path, "", descriptors_max=77)

    assert process.wait(30) == 0
    told = dict(line.split(" ", 1) for line in process.text.splitlines())
    assert told == {
        "argv": "[''] __main__ True",
        "env": str(sorted({*os.environ, "PYTHONPATH", "ADDED"})),
        "path": f"True {tmp_path}",
        "group": "True",
        "descriptors": "[0, 1, 2] 77",
        "stdin": "",
        "sigchld": "True",
    }


@pytest.mark.parametrize(
    ("code", "expected", "text"),
    [
        ("sys.exit(7)", 7, ""),
        ("raise ValueError('no more')", 1, "ValueError: no more"),
        ("import atexit; atexit.register(print, 'at exit'); sys.exit()", 0, "at exit"),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
        ("import warnings; warnings.warn('rain')", 1, "UserWarning: rain"),
    ],
)
def test_end_of_a_forked_program_is_reported(tmp_path: Path, code: str, expected: int, text: str) -> None:
    process = started(tmp_path, code)

    assert process.wait(30) == expected
    assert text in process.text
    assert not process.alive


def test_signals_reach_a_forked_program(tmp_path: Path) -> None:
    # `signal.pause` alone would miss a signal that arrives just before it: Python's handler runs after the call only.
    with started(tmp_path, "while True: signal.sigtimedwait([], 0.05)") as process:
        process.wait_for_line("sigchld", 30)
        assert process.alive
        with pytest.raises(HarnessError, match=r"still runs after 0\.01 s"):
            process.wait(0.01)

        process.signal(signal.SIGINT)

        assert process.wait(30) == -signal.SIGINT
        assert "KeyboardInterrupt" in process.text


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends the process")
def test_forked_program_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, sys; from tests.test_fork_server import started;"
        "p = started(pathlib.Path(sys.argv[1]), 'signal.pause()'); p.wait_for_line('sigchld', 30);"
        "print(p.pid, flush=True); os._exit(9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=tree.ROOT, stdout=subprocess.PIPE, text=True, check=False
    )

    assert done.returncode == 9
    assert ends(int(done.stdout))


def ends(pid: int) -> bool:
    """Returns whether a process ends within a limit."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with open(descriptor, "rb"):
        return bool(select.select([descriptor], [], [], 30)[0])
