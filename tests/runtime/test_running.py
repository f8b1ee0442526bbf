"""Programs that are run by `kactl.run`, and the signals that end them."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

import kactl
from kactl.model.errors import IllegalState
from tests.participant.leases.test_watchdog_process import as_process_1

PATIENCE_S = 60
PROGRAM = """
import anyio, multiprocessing, signal, sys, time, kactl
def work(begin):
    begin.send("begun")
    time.sleep(600)
async def main(what):
    print("began", flush=True)
    try:
        match what:
            case "wait":
                await anyio.sleep_forever()
            case "block":
                while True:
                    time.sleep(0.01)
            case "fork":
                begun, begin = multiprocessing.Pipe(duplex=False)
                child = multiprocessing.get_context("fork").Process(target=work, args=(begin,))
                child.start()
                await anyio.to_thread.run_sync(begun.recv)
                child.terminate()
                await anyio.to_thread.run_sync(child.join)
                print("child", child.exitcode, flush=True)
                await anyio.sleep(0.2)
            case "refuse":
                with anyio.CancelScope(shield=True):
                    await anyio.sleep_forever()
    finally:
        print("cleaned up", flush=True)
kactl.run(main, sys.argv[1])
print("returned", flush=True)
"""


@contextmanager
def running(what: str, *prefix: str) -> "Iterator[subprocess.Popen[str]]":
    command = [*prefix, sys.executable, "-c", PROGRAM, what]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "began\n"
        try:
            yield program
        finally:
            program.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_a_program_in_order(number: signal.Signals) -> None:
    with running("wait") as program:
        program.send_signal(number)
        output, _ = program.communicate(timeout=PATIENCE_S)

    line = f"kactl: {number.name}: the program ends in order; a second signal ends it at once"
    assert (program.returncode, output) == (0, f"{line}\ncleaned up\nreturned\n")


def test_process_1_is_ended_in_order() -> None:
    with running("wait", *as_process_1()) as program:
        children = subprocess.run(["pgrep", "-P", str(program.pid)], capture_output=True, text=True, check=True)
        subprocess.run(["kill", "-TERM", children.stdout.strip()], check=True)
        output, _ = program.communicate(timeout=PATIENCE_S)

    assert program.returncode == 0
    assert output.endswith("signal ends it at once\ncleaned up\nreturned\n")


@pytest.mark.parametrize("what", ["block", "refuse"])
def test_second_signal_ends_a_program_that_does_not_end(what: str) -> None:
    with running(what) as program:
        code = None
        while code is None:  # two signals that come close together may be one
            program.send_signal(signal.SIGTERM)
            try:
                code = program.wait(0.1)
            except subprocess.TimeoutExpired:
                continue

    assert code == 128 + signal.SIGTERM


def test_forked_process_has_the_handlers_of_before() -> None:
    with running("fork") as program:
        output, _ = program.communicate(timeout=PATIENCE_S)

    assert (program.returncode, output) == (0, f"child {-signal.SIGTERM}\ncleaned up\nreturned\n")


def test_result_is_returned_and_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    async def main(first: int, second: int) -> int:
        await anyio.lowlevel.checkpoint()
        return first + second

    assert kactl.run(main, 1, 2) == 3
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)

    async def main() -> object:
        signal.raise_signal(signal.SIGINT)
        await anyio.lowlevel.checkpoint()
        return signal.getsignal(signal.SIGINT)

    try:
        assert kactl.run(main) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.anyio
async def test_running_event_loop_is_refused_with_the_remedy() -> None:
    with pytest.raises(IllegalState, match=r"as in a notebook: use `await worker.start\(\)`"):
        kactl.run(anyio.sleep, 0)


def test_call_in_place_of_a_function_is_refused() -> None:
    with pytest.raises(TypeError, match="takes a worker or an async function that it calls"):
        kactl.run(anyio.lowlevel.checkpoint())  # type: ignore[arg-type]


def test_exception_of_the_program_leaves_unchanged() -> None:
    async def main() -> None:
        raise LookupError("of the program")

    with pytest.raises(LookupError, match="of the program"):
        kactl.run(main)


def test_program_in_another_thread_runs_without_handlers() -> None:
    results: list[object] = []

    async def main() -> str:
        return "done"

    thread = threading.Thread(target=lambda: results.append(kactl.run(main)))
    thread.start()
    thread.join(PATIENCE_S)

    assert results == ["done"]


UNREACHABLE = """
import logging, sys, kactl
async def work(shard): ...
async def main():
    async with kactl.Controller(1, store=store):
        raise AssertionError
store = kactl.SqliteStore(sys.argv[2])
if sys.argv[3:]:
    logging.basicConfig(level=logging.DEBUG)
kactl.run(main if sys.argv[1] == "controller" else kactl.shards("jobs", 2, work, store=store))
"""


@pytest.mark.parametrize("what", ["controller", "worker", "debug"])
def test_store_that_cannot_be_opened_at_the_start_is_one_sentence(what: str, tmp_path: Path) -> None:
    path = tmp_path / "missing" / "workers.db"
    arguments = [what, str(path)] if what != "debug" else ["worker", str(path), what]
    program = subprocess.run(
        [sys.executable, "-c", UNREACHABLE, *arguments], capture_output=True, text=True, timeout=180, check=False
    )

    assert (program.returncode, program.stdout) == (1, "")
    assert ("Traceback" in program.stderr) == (what == "debug")
    if what != "debug":
        assert program.stderr.count("\n") == 1
        assert str(path) in program.stderr
