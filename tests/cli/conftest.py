"""Clusters of the tests. The shared one is used with distinct topic names."""

from collections.abc import Iterator

import pytest

from .server import PATIENT, Up


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Shared cluster of three brokers."""
    server = Up(tmp_path_factory.mktemp("up"))
    yield server
    server.close()


@pytest.fixture
def own_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Cluster that the test may stop."""
    server = Up(tmp_path_factory.mktemp("own"))
    yield server
    if server.process.alive:
        server.process.kill()


@pytest.fixture
def patient_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Cluster with a long session timeout that the test may stop."""
    server = Up(tmp_path_factory.mktemp("patient"), env=PATIENT)
    yield server
    if server.process.alive:
        server.process.kill()
