"""Several stores of one SQLite file in a process, beside other programs that open, close and replace the file."""

import contextlib
import os
import signal
import sqlite3
from functools import partial
from pathlib import Path

import pytest

from .places import require_places
from .service import PATIENCE_S, Service, Worker, running

pytestmark = pytest.mark.slow


def active(programs: list[Worker]) -> list[tuple[int, int]]:
    """Returns node and epoch of the controllers that are active now, as far as their programs are alive."""
    nodes: dict[int, tuple[str, int]] = {}
    for program in programs:
        own = {event["node"]: (event["event"], event["epoch"]) for event in program.all_events() if "node" in event}
        nodes |= own if program.process.alive else {}
    return [(node, epoch) for node, (state, epoch) in nodes.items() if state == "active"]


def until_more(service: Service) -> None:
    """Wait until a few more topics are confirmed."""
    before = len(service.confirmed())
    service.until(lambda: len(service.confirmed()) > before + 3, "more topics are confirmed")


def test_programs_that_close_the_file_end_no_lock_of_another(tmp_path: Path) -> None:
    require_places()
    file = tmp_path / "kactl.db"
    with running(tmp_path) as service:
        first = service.start_program("tests.environment.controllers", str(file), "1,2")
        service.until(lambda: len(active([first])) == 1, "one of two controllers is active")
        until_more(service)

        for _ in range(2):  # a standby, which ends
            other = service.start_program("tests.environment.controllers", str(file), "7")
            service.until(partial(other.events, "joined"), "it runs")
            until_more(service)
            other.process.stop(PATIENCE_S)
            with sqlite3.connect(file) as connection:  # an operator's look
                connection.execute("SELECT count(*) FROM sqlite_master")
            connection.close()
            first.process.signal(signal.SIGUSR1)  # and one of the host program itself
            until_more(service)

        # Each epoch belongs to one controller, and one is active.
        assert len(first.events("opened")) == 2
        assert len(active(service.workers)) == 1
        holders = [(event["epoch"], event["node"]) for event in service.events("active")]
        assert len({epoch for epoch, _ in holders}) == len(holders)
        first.process.stop(PATIENCE_S)
        (stored,) = first.events("stored")
        assert service.confirmed() <= set(stored["topics"])


def test_replaced_file_is_led_by_one_controller(tmp_path: Path) -> None:
    """An operator moves a copy over the file of a running controller, and starts a second one."""
    require_places()
    file = tmp_path / "kactl.db"
    with running(tmp_path) as service:
        first = service.start_program("tests.environment.controllers", str(file), "1")
        until_more(service)
        with (
            contextlib.closing(sqlite3.connect(file)) as source,
            contextlib.closing(sqlite3.connect(f"{file}.new")) as to,
        ):
            source.backup(to)

        os.replace(f"{file}.new", file)
        second = service.start_program("tests.environment.controllers", str(file), "2")

        service.until(partial(second.events, "active"), "the second one is active")
        service.until(lambda: active([first]) == [], "the first one is active no more")
        assert second.events("active")[0]["epoch"] > first.events("active")[0]["epoch"]
