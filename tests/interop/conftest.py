"""Marks every test of this folder as `interop`; they run real servers."""

from pathlib import Path

import pytest

from tests.support.zookeeper_fixtures import chroot, fresh_zookeeper, jars, jars_4, zookeeper

__all__ = ["chroot", "fresh_zookeeper", "jars", "jars_4", "zookeeper"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.interop)
