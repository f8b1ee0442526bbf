"""Real time, unseeded randomness and threads are rejected in a simulated run, and only there."""

import email.utils
import os
import random
import secrets
import socket
import threading
import time
import uuid
from collections.abc import Callable

import pytest

from kactl.testing import NonDeterministic, RealWorld, sim

READINGS: dict[str, Callable[[], object]] = {
    "time.time": lambda: time.time(),
    "time.monotonic": lambda: time.monotonic(),
    "time.perf_counter": lambda: time.perf_counter(),
    "random.random": lambda: random.random(),
    "random.shuffle": lambda: random.shuffle([1, 2]),
    "random.Random() without a seed": lambda: random.Random(),
    "uuid.uuid4": lambda: uuid.uuid4(),
    "os.urandom": lambda: os.urandom(1),
    "secrets.token_hex": lambda: secrets.token_hex(),
}


@pytest.mark.parametrize("name", READINGS)
def test_reading_is_rejected_with_file_and_line(name: str) -> None:
    async def main() -> None:
        READINGS[name]()

    with pytest.raises(NonDeterministic) as raised:
        sim.run(main)

    assert f"{__file__}:" in str(raised.value)
    assert f"calls {name}: use " in str(raised.value)


@pytest.mark.parametrize("name", READINGS)
def test_reading_is_possible_before_and_after_a_run_and_in_allowed_modules(name: str) -> None:
    async def main() -> None:
        READINGS[name]()

    sim.run(main, allowed=(__name__,))
    READINGS[name]()


def test_named_packages_are_guarded_too() -> None:
    async def main() -> str:
        return email.utils.formatdate()

    assert sim.run(main)
    with pytest.raises(NonDeterministic, match=r"email.utils\.py:[0-9]+ calls time\.time: use "):
        sim.run(main, guarded=("email",))


def test_seeded_random_is_possible() -> None:
    async def main() -> float:
        return random.Random(7).random()

    assert sim.run(main) == random.Random(7).random()


def test_thread_and_socket_are_rejected() -> None:
    async def thread() -> None:
        threading.Thread(target=print).start()

    async def connection() -> None:
        with socket.socket() as client:
            client.connect(("127.0.0.1", 1))

    for main in (thread, connection):
        with pytest.raises(RealWorld, match="is not simulated"):
            sim.run(main)


def test_thread_from_before_the_run_reads_the_clock_and_starts_others() -> None:
    began, results = threading.Event(), []

    def elsewhere() -> None:
        assert began.wait(60)
        other = threading.Thread(target=lambda: results.append(time.monotonic()))
        other.start()
        other.join(60)
        results.append(time.monotonic())

    thread = threading.Thread(target=elsewhere)
    thread.start()

    async def main() -> None:
        began.set()
        thread.join(60)

    sim.run(main)

    assert len(results) == 2
