"""Two hundred participants behind one address, as behind a router that translates addresses."""

from pathlib import Path

import pytest

from .places import require_places
from .service import running

pytestmark = pytest.mark.slow

PARTICIPANTS, PROCESSES = 200, 4
# Leases must outlast the start of a server, however busy the machine is; what is tested is that all are renewed.
SESSION_MS = 180_000


def test_many_participants_of_one_address_outlive_their_server(tmp_path: Path) -> None:
    require_places()
    with running(tmp_path, settings={"KACTL_STORE__SESSION_TIMEOUT": "10s"}) as service:
        service.start_server()
        each = PARTICIPANTS // PROCESSES
        for number in range(PROCESSES):
            service.start_worker(number * each + 1, (number + 1) * each, "--session-ms", f"{SESSION_MS}")
        service.until_registered(PARTICIPANTS)
        service.create("jobs", partitions=PARTICIPANTS)
        service.until_led("jobs", PARTICIPANTS, by=set(range(1, PARTICIPANTS + 1)))

        service.server.kill()
        service.start_server()
        service.create("more", partitions=PARTICIPANTS)
        service.until_led("more", PARTICIPANTS)

        assert service.events("ended") == []
        assert service.events("failed") == []
