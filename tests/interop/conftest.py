"""Marks every test of this folder as `interop`; they run real servers."""

from pathlib import Path

import pytest

from tests.support.jars import require_jars
from tests.support.zookeeper_fixtures import chroot, fresh_zookeeper, jars_4, zookeeper

from . import class_archive

__all__ = ["chroot", "fresh_zookeeper", "jars_4", "zookeeper"]


@pytest.fixture(scope="session")
def jars() -> str:
    """Returns the class path of the servers, as the fixture for all tests does; here brokers are started often enough
    for an archive of their classes."""
    path = require_jars()
    class_archive.build()
    return path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.interop)
