"""One cluster for all commands that leave it as it was; topics have names of their own."""

from collections.abc import Iterator

import pytest

from .server import PATIENT, Up


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A running cluster of three brokers."""
    server = Up(tmp_path_factory.mktemp("up"))
    yield server
    server.close()


@pytest.fixture
def own_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One that a test may end."""
    server = Up(tmp_path_factory.mktemp("own"))
    yield server
    if server.process.alive:
        server.process.kill()


@pytest.fixture
def patient_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """The same, but after a kill it is missed for long enough to see the next one wait for that."""
    server = Up(tmp_path_factory.mktemp("patient"), env=PATIENT)
    yield server
    if server.process.alive:
        server.process.kill()
