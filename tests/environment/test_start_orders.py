"""Processes of a service that start in any order, as under compose or Kubernetes: each waits for what it needs."""

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.etcd_server import EtcdServer, require_etcd

from .places import require_places
from .service import Service, running
from .worker import now_ms

pytestmark = pytest.mark.slow

SESSION_MS = 2_000
STORE, SERVER, WORKERS = "store", "server", "workers"


@pytest.mark.parametrize("order", [*itertools.permutations((STORE, SERVER, WORKERS))], ids="-".join)
def test_service_starts_in_every_order(order: tuple[str, ...], tmp_path: Path) -> None:
    """None of the first two ends while the third is missing for longer than a session."""
    require_places()
    require_etcd()
    etcd = EtcdServer(tmp_path)
    settings = {"KACTL_STORE__KIND": "etcd", "KACTL_STORE__ENDPOINTS": etcd.url}
    with running(tmp_path, settings=settings) as service:
        starts: Mapping[str, Callable[[], None]] = {
            STORE: etcd.start,
            SERVER: lambda: start_server(service),
            WORKERS: lambda: start_workers(service),
        }
        try:
            for name in order[:-1]:
                starts[name]()
            until_ms = now_ms() + 1.5 * SESSION_MS
            service.until(lambda: now_ms() > until_ms, "the last one is missing for longer than a session")
            starts[order[-1]]()

            service.until_registered(2)
            service.until(lambda: "kactl is up" in service.server.text, "the server is up")
            service.create("jobs", partitions=4)
            service.until_led("jobs", 4, by={1, 2})
        finally:
            etcd.kill()


def start_server(service: Service) -> None:
    """Start the server, and wait until it is about to use the store."""
    service.start_server(wait=False)
    service.until((service.data / "lock").exists, "the server uses its folder")


def start_workers(service: Service) -> None:
    """Start two workers, and wait until they are about to connect."""
    for broker in (1, 2):
        service.start_worker(broker, None, "--session-ms", f"{SESSION_MS}")
    service.until(lambda: len(service.events("starts")) == 2, "the workers start")


def test_processes_that_start_at_once_find_each_other(tmp_path: Path) -> None:
    require_places()
    require_etcd()
    etcd = EtcdServer(tmp_path)
    with running(tmp_path, settings={"KACTL_STORE__KIND": "etcd", "KACTL_STORE__ENDPOINTS": etcd.url}) as service:
        try:
            service.start_worker(1, 3)
            service.start_server(wait=False)
            etcd.launch()
            service.start_worker(4)

            service.until_registered(4)
            service.create("jobs", partitions=8, replicas=2)
            service.until_led("jobs", 8, by={1, 2, 3, 4})
        finally:
            etcd.kill()
