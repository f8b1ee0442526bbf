"""Servers and participants as process 1 of a PID namespace, which the entry point of a container is."""

from pathlib import Path

import pytest

from .places import Place, require_places
from .service import PATIENCE_S, running

pytestmark = pytest.mark.slow


def test_killed_process_one_is_replaced_and_stops_orderly(tmp_path: Path) -> None:
    require_places()
    with running(tmp_path, Place(process_one=True)) as service:
        server = service.start_server()
        for broker in (1, 2):
            service.start_worker(broker)
        service.until_registered(2)
        service.create("jobs", partitions=4, replicas=2)
        service.until_led("jobs", 4, by={1, 2})

        service.workers[0].kill()
        service.until_led("jobs", 4, by={2})
        status = service.kactl("status")
        server.terminate()

        assert "brokers 1/2" in status.text
        assert server.wait(PATIENCE_S) == 0
        assert "Stopped." in server.text
        service.start_server()
        service.until_led("jobs", 4, by={2})


def test_watchdog_that_cannot_kill_process_one_is_refused(tmp_path: Path) -> None:
    """The kernel keeps signals of its own namespace from process 1. The error names the remedy."""
    require_places()
    with running(tmp_path) as service:
        worker = service.start_worker(1, None, "--watchdog", "process", place=Place(process_one=True))

        service.until(lambda: worker.events("failed"), "it is refused")

        (failed,) = worker.events("failed")
        assert "init" in failed["error"]
        assert "\n" not in failed["error"]
