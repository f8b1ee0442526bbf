"""Look-ups of host names, with a resolver that hangs."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kactl.runtime import resolver
from kactl.runtime.resolver import NotResolved, resolve
from tests.support.busy_threads import busy_threads
from tests.support.host_names import ALIVE, Names

pytestmark = pytest.mark.anyio

# More than any test takes on a busy machine.
LIMIT_S = 60.0


@pytest.fixture(scope="module", params=[pytest.param(False, id="asyncio"), pytest.param(True, id="uvloop")])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    """Names of this test, and look-ups of its own."""
    monkeypatch.setattr(resolver, "_look_ups", resolver._LookUps())
    monkeypatch.setattr(resolver, "PROMPT_S", LIMIT_S)
    with Names() as names:
        yield names


def hang(names: Names, count: int) -> list["asyncio.Task[Any]"]:
    """Look up names whose servers do not answer."""
    hosts = [f"dead-{number}.test" for number in range(count)]
    names.hanging.update(hosts)
    return [asyncio.create_task(resolve(host, 1, limit_s=LIMIT_S)) for host in hosts]


async def cancel(tasks: list["asyncio.Task[Any]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_new_name_is_found_among_a_hundred_that_hang(names: Names) -> None:
    names.addresses["healthy.test"] = [ALIVE]
    dead = hang(names, 100)
    await asyncio.sleep(0)

    found = await resolve("healthy.test", 7, limit_s=LIMIT_S)

    assert [each.sockaddr for each in found] == [(ALIVE, 7)]
    await cancel(dead)


async def test_known_name_is_found_though_all_others_hang(names: Names) -> None:
    names.addresses["healthy.test"] = [ALIVE]
    await resolve("healthy.test", 7, limit_s=LIMIT_S)
    dead = hang(names, 2 * resolver.THREADS_MAX)
    await asyncio.sleep(0)

    found = await resolve("healthy.test", 7, limit_s=LIMIT_S)

    assert found
    assert len(resolver._look_ups._running) == resolver.UNPROVEN_MAX
    await cancel(dead)


async def test_slow_name_waits_behind_new_ones(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "THREADS_MAX", 1)
    monkeypatch.setattr(resolver, "UNPROVEN_MAX", 1)
    names.addresses |= {"slow.test": [ALIVE], "new.test": [ALIVE]}
    monkeypatch.setattr(resolver, "PROMPT_S", -1.0)
    await resolve("slow.test", 7, limit_s=LIMIT_S)
    monkeypatch.setattr(resolver, "PROMPT_S", LIMIT_S)
    dead = hang(names, 1)
    await asyncio.sleep(0)

    order: list[str] = []

    async def look_up(host: str) -> None:
        await resolve(host, 7, limit_s=LIMIT_S)
        order.append(host)

    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(look_up("slow.test"))
        tasks.create_task(look_up("new.test"))
        await asyncio.sleep(0)
        names.answers.set()

    assert order == ["new.test", "slow.test"]
    await cancel(dead)


async def test_callers_share_a_look_up_of_one_name(names: Names) -> None:
    names.addresses["slow.test"] = [ALIVE]
    names.hanging.add("slow.test")
    callers = [asyncio.create_task(resolve("slow.test", port, limit_s=LIMIT_S)) for port in range(1, 9)]
    await asyncio.sleep(0)

    callers[0].cancel()  # which does not end it for the others
    names.answers.set()
    found = await asyncio.gather(*callers[1:])

    assert [each[0].sockaddr for each in found] == [(ALIVE, port) for port in range(2, 9)]
    assert names.asked["slow.test"] == 1


async def test_answer_after_the_limit_is_for_the_next_caller(names: Names) -> None:
    """As if the first of two name servers is down: each look-up takes longer than the callers wait."""
    names.addresses["slow.test"] = [ALIVE]
    names.hanging.add("slow.test")

    with pytest.raises(NotResolved, match=r"no answer within 0.01 s"):
        await resolve("slow.test", 7, limit_s=0.01)
    names.answers.set()
    async with asyncio.timeout(LIMIT_S):
        while resolver._look_ups._running:  # noqa: ASYNC110 - ends in a thread
            await asyncio.sleep(0.01)
    found = await resolve("slow.test", 7, limit_s=LIMIT_S)

    assert found
    assert names.asked["slow.test"] == 1
    await resolve("slow.test", 7, limit_s=LIMIT_S)
    assert names.asked["slow.test"] == 2  # answers are not kept any longer


async def test_look_up_that_hangs_is_not_joined_for_ever(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    names.addresses["stuck.test"] = [ALIVE]
    names.hanging.add("stuck.test")
    first = asyncio.create_task(resolve("stuck.test", 7, limit_s=LIMIT_S))
    await asyncio.sleep(0)
    names.wait_asked("stuck.test")
    names.hanging.clear()

    monkeypatch.setattr(resolver, "STUCK_S", -1.0)
    found = await resolve("stuck.test", 7, limit_s=LIMIT_S)

    assert found
    assert names.asked["stuck.test"] == 2
    await cancel([first])


async def test_caller_that_leaves_the_queue_is_not_looked_up(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "THREADS_MAX", 1)
    dead = hang(names, 1)
    await asyncio.sleep(0)

    waiting = asyncio.create_task(resolve("waiting.test", 7, limit_s=LIMIT_S))
    await asyncio.sleep(0)
    await cancel([waiting])

    assert not resolver._look_ups._waiting
    await cancel(dead)
    names.answers.set()
    assert not names.asked["waiting.test"]


@pytest.mark.parametrize("host", ["127.0.0.9", "::1", "fe80::1%lo"])
async def test_address_needs_no_thread(names: Names, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise AssertionError("a thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)

    (found,) = await resolve(host, 7, limit_s=LIMIT_S)

    assert found.sockaddr[1] == 7


async def test_busy_threads_of_the_program_do_not_matter(names: Names) -> None:
    """asyncio has a few threads, anyio forty, and uvloop four in its C library."""
    names.addresses["healthy.test"] = [ALIVE]
    names.hanging.update(f"other-{number}.test" for number in range(8))
    loop = asyncio.get_running_loop()
    async with busy_threads():
        others = [asyncio.create_task(loop.getaddrinfo(host, 1)) for host in names.hanging]
        try:
            assert await resolve("healthy.test", 7, limit_s=LIMIT_S)
        finally:
            names.answers.set()
    await asyncio.gather(*others, return_exceptions=True)


async def test_missing_thread_is_an_error_with_its_remedy(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(NotResolved, match="raise the limit of tasks"):
            await resolve("healthy.test", 7, limit_s=LIMIT_S)

    names.addresses["healthy.test"] = [ALIVE]
    assert await resolve("healthy.test", 7, limit_s=LIMIT_S)


@pytest.mark.parametrize(("host", "port"), [("a..b", 1), ("x" * 300, 1), ("127.0.0.1", 70_000)])
async def test_text_that_is_no_address_is_an_error_of_the_network(names: Names, host: str, port: int) -> None:
    names.addresses[host] = [ALIVE]
    if not host.startswith("127"):
        names.__exit__()

    with pytest.raises(OSError, match=r"it is no host name|is no port"):
        await resolve(host, port, limit_s=LIMIT_S)


HANGING = """
import asyncio, os, socket, sys, threading
def hang(*args, **kwargs):
    if not os.environ.get("ANSWERS"):
        threading.Event().wait()
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.3", 0))]
socket.getaddrinfo = hang
from kactl.runtime.resolver import resolve
async def main(limit_s):
    try:
        print(await resolve("slow.test", 7, limit_s=limit_s), flush=True)
    except OSError as error:
        print(error, flush=True)
asyncio.run(main(0.05))
"""


def run(program: str) -> str:
    # From Python 3.12 on, a fork beside threads is warned of: it is what is tried here.
    command = [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert not done.stderr
    return done.stdout


def test_process_ends_while_a_look_up_hangs() -> None:
    assert "no answer within 0.05 s" in run(HANGING)


def test_forked_child_looks_names_up_itself() -> None:
    forked = HANGING + (
        "child = os.fork()\n"
        "if not child:\n"
        "    os.environ['ANSWERS'] = '1'\n"
        "    asyncio.run(main(30))\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
    )

    assert "('127.0.0.3', 7)" in run(forked)


SERVERS = """
import asyncio, sys, time
from kactl.runtime.resolver import resolve
async def main():
    dead = [asyncio.create_task(resolve(f"dead-{number}.test", 7, limit_s=60)) for number in range(20)]
    await asyncio.sleep(0)
    print((await resolve("healthy.test", 7, limit_s=60))[0].host, sum(task.done() for task in dead), flush=True)
    for task in dead:
        task.cancel()
asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file of its own over /etc/resolv.conf")
def test_silent_name_server_delays_its_own_names_only(tmp_path: Any) -> None:
    """With the system's resolver, whose only server is silent: 20 names need minutes each."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        try:
            silent.bind(("127.0.0.53", 53))
        except OSError as error:
            pytest.skip(f"port 53: {error.strerror}")
        (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.53\noptions timeout:30 attempts:5\n")
        (tmp_path / "hosts").write_text(f"{ALIVE} healthy.test\n")
        mounts = " && ".join(f"mount --bind {tmp_path / name} /etc/{name}" for name in ("resolv.conf", "hosts"))
        command = ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$0" -c "$1"', sys.executable, SERVERS]

        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert done.stdout.split() == [ALIVE, "0"], done.stderr


def test_loops_of_several_threads_share_look_ups(names: Names) -> None:
    names.addresses["slow.test"] = [ALIVE]
    names.hanging.add("slow.test")
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(asyncio.run(resolve("slow.test", 7, limit_s=LIMIT_S))))
        for _ in range(4)
    ]

    for thread in threads:
        thread.start()
    _until(lambda: bool(resolver._look_ups._newest) and len(resolver._look_ups._newest["slow.test"].callers) == 4)
    names.answers.set()
    for thread in threads:
        thread.join(LIMIT_S)

    assert len(found) == 4
    assert names.asked["slow.test"] == 1


def _until(condition: Callable[[], bool]) -> None:
    """Wait for another thread."""
    ends = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.001)
