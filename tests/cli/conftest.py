"""One cluster for all commands that leave it as it was; topics have names of their own."""

from collections.abc import Iterator

import pytest

from .server import Up


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
