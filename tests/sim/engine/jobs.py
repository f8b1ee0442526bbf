"""Processes that explore seeds at the same time."""

import contextlib
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from . import mutants

_MODULE: Final = "tests.sim.engine.exploring"
_END: Final = object()
# The folder of `tests`, which is installed nowhere: the processes may be started in any folder.
_ROOT: Final = Path(__file__).parents[3]


class JobFailed(Exception):
    """A process of the search ended by an error. The text is what it wrote last."""

    def __init__(self, code: int, output: str) -> None:
        super().__init__(f"a process of the search ended with code {code}: {output.strip() or 'it wrote nothing'}")
        self.code = code


def command(arguments: list[str], *, mutant: str = "", mutants_file: Path | None = None) -> list[str]:
    """Returns the command that runs the search in a fresh process, with a mutant if one is named."""
    if not mutant:
        return [sys.executable, "-m", _MODULE, *arguments]
    return [sys.executable, "-c", mutants.BOOTSTRAP, mutants.__file__, str(mutants_file), mutant, _MODULE, *arguments]


def results(commands: list[list[str]]) -> Generator[dict[str, Any]]:
    """Run commands at the same time, and yield the JSON objects that they print, as they come.

    The processes are ended when the iteration ends.

    Raises:
        JobFailed: one ended by an error.
    """
    lines: queue.SimpleQueue[Any] = queue.SimpleQueue()
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    with contextlib.ExitStack() as stack:
        for one in commands:
            process = subprocess.Popen(one, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
            reader = threading.Thread(target=_read, args=(process, lines), daemon=True)
            stack.callback(_end, process, reader)
            reader.start()
        left = len(commands)
        while left:
            line = lines.get()
            if isinstance(line, JobFailed):
                raise line
            if line is _END:
                left -= 1
            else:
                yield msgspec.json.decode(line)


def _read(process: "subprocess.Popen[str]", lines: "queue.SimpleQueue[Any]") -> None:
    """Pass the lines of one process on. Its errors are read at the same time, or it could not write more of them."""
    assert process.stdout is not None
    assert process.stderr is not None
    errors: list[str] = []
    reader = threading.Thread(target=_collect, args=(process.stderr, errors), daemon=True)
    reader.start()
    with process.stdout, process.stderr:
        for line in process.stdout:
            lines.put(line)
        reader.join()
    code = process.wait()
    lines.put(JobFailed(code, "".join(errors[-20:])) if code else _END)


def _collect(stream: IO[str], lines: list[str]) -> None:
    lines.extend(stream)


def _end(process: "subprocess.Popen[str]", reader: threading.Thread) -> None:
    if process.poll() is None:
        process.kill()
    reader.join()
