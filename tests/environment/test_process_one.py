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
