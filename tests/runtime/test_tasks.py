"""Failures of tasks that no block awaits: they are logged, and end no other task."""

import asyncio
import logging
from typing import Any

import pytest

import kactl
from kactl import admin
from kactl.actors.priority_inbox import Timers
from kactl.admin.progress import ProgressWatch
from kactl.decide.messages.events import Event, Startup
from kactl.runtime.tasks import Tasks
from tests.admin.test_mounted import host_with, running
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio


class Bug(Exception):
    pass


async def fail(*_: Any) -> None:
    raise Bug("mistaken")


async def test_failed_task_is_logged_and_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    tasks, end = Tasks("the tests"), asyncio.Event()

    tasks.spawn(fail())
    other = tasks.spawn(end.wait())
    await settle()

    assert [record.getMessage() for record in caplog.records] == ["a task of the tests failed: Bug('mistaken')"]
    assert not other.done()
    await tasks.close()
    assert other.cancelled()


async def test_timer_that_fails_is_logged_and_can_be_set_again(caplog: pytest.LogCaptureFixture) -> None:
    clock, queued = ManualClock(), list[Event]()

    def enqueue(event: Event) -> None:
        queued.append(event)
        raise Bug("mistaken")

    timers = Timers(clock, enqueue)
    for number in (1, 2):
        timers.set(Startup(), 10)
        await clock.advance(10)
        await settle()

        assert len(queued) == number
        assert not timers.is_set(Startup())

    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [Bug, Bug]


async def test_failure_of_the_progress_watch_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ProgressWatch, "run", fail)
    async with kactl.Controller(100) as controller:
        await controller.wait_active()
        async with running(host_with(admin.application(controller, access=admin.Open(), prefix="/kactl"))) as client:
            response = await client.ask("GET", "/kactl/v1/topics")

    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert response.status == 200
    assert [error.getMessage() for error in errors] == ["a task of the admin API failed: Bug('mistaken')"]
