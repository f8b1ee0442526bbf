"""Marks every test of this folder as `interop`; they run real servers."""

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


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test of this folder. `pytest_collection_modifyitems` would visit those of all folders."""
    item.add_marker(pytest.mark.interop)
