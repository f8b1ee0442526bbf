"""Clocks that differ between containers, that are set while programs run, and processes that are all stopped."""

import os
import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.jars import REQUIRE

from .places import HERE, Place, require_places
from .service import SESSION_MS, Service, running
from .worker import now_ms

pytestmark = pytest.mark.slow

DAY_S = 86_400


def start(service: Service, *places: Place) -> None:
    """Start a server, and a participant in each place; all of them lead."""
    service.start_server()
    for broker, place in enumerate(places, start=1):
        service.start_worker(broker, place=place)
    service.until_registered(len(places))
    service.create("jobs", partitions=4, replicas=len(places))
    service.until_led("jobs", 4, by=set(range(1, len(places) + 1)))


def test_containers_with_other_boot_times_hand_over_without_overlap(tmp_path: Path) -> None:
    """The clocks of leases differ by days, in both directions."""
    require_places()
    with running(tmp_path) as service:
        start(service, Place(boot_offset_s=11 * DAY_S), Place(boot_offset_s=-600), HERE)

        for broker, others in ((1, {2, 3}), (2, {3})):
            service.workers[broker - 1].process.pause()
            service.until_led("jobs", 4, by=others)
        for broker in (1, 2):
            service.workers[broker - 1].process.resume()

        service.until(lambda: all(not worker.leading() for worker in service.workers[:2]), "earlier leaders have ended")
        service.until_led("jobs", 4, by={3})


class WallClock:
    """A wall clock that can be set, for programs that run with its settings."""

    def __init__(self, folder: Path) -> None:
        self._step = folder / "clock-step"
        self.set(0)
        library = folder / "clock_step.so"
        source = Path(__file__).with_name("clock_step.c")
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
        self.settings: Mapping[str, str] = {"LD_PRELOAD": str(library), "KACTL_TESTS_CLOCK_STEP": str(self._step)}

    def set(self, seconds: int) -> None:
        """Let the wall clock differ from the machine's by this time."""
        with self._step.open("r+b" if self._step.exists() else "wb") as file:
            file.write(struct.pack("=q", seconds * 10**9))


def require_compiler() -> None:
    if shutil.which("gcc") is None:
        missing = "there is no gcc, which compiles a wall clock that can be set"
        pytest.fail(missing) if os.environ.get(REQUIRE) == "1" else pytest.skip(missing)


def test_steps_of_the_wall_clock_move_no_leader(tmp_path: Path) -> None:
    """The clock is set forward by a year, and back by two; nothing ends, and new topics are served."""
    require_places()
    require_compiler()
    clock = WallClock(tmp_path)
    with running(tmp_path, settings=clock.settings) as service:
        start(service, HERE, HERE)
        before = service.led()

        clock.set(365 * DAY_S)
        service.create("forward", partitions=2)
        service.until_led("forward", 2, by={1, 2})
        clock.set(-365 * DAY_S)
        until_ms = now_ms() + SESSION_MS
        service.until(lambda: now_ms() > until_ms, "sessions that are not renewed have ended")
        service.create("back", partitions=2)
        service.until_led("back", 2, by={1, 2})

        assert set(before) <= set(service.led())
        assert service.events("ended") == []


def test_suspended_machine_continues_without_an_operator(tmp_path: Path) -> None:
    """All processes are stopped for longer than all sessions last, and continued."""
    require_places()
    with running(tmp_path) as service:
        start(service, HERE, HERE)
        processes = [service.server, *(worker.process for worker in service.workers)]

        for process in processes:
            process.pause()
        until_ms = now_ms() + SESSION_MS + 1_000
        service.until(lambda: now_ms() > until_ms, "all sessions have lasted too long")
        for process in reversed(processes):
            process.resume()

        service.until(lambda: len(service.events("ended")) >= 4, "all leases have ended")
        service.create("after", partitions=2)
        service.until_led("after", 2, by={1, 2})
        service.until(lambda: len(service.leaders("jobs")) == 4, "all partitions are led again")
