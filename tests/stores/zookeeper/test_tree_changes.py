"""Paths of a watched tree as changes, without a server."""

from typing import cast

import pytest

from kactl.stores.zookeeper.client import Client
from kactl.stores.zookeeper.tree_changes import TreeChanges

pytestmark = pytest.mark.anyio


class NoServer:
    """A client that gets every response at once."""

    async def watch_tree(self, path: str) -> None:
        """Watch nothing."""

    async def ask(self, request: object) -> None:
        """Do nothing."""

    def path(self, path: str) -> str:
        return path


@pytest.mark.parametrize(
    ("number", "partitions"),
    [
        ("7", ["orders-7"]),
        ("2147483647", ["orders-2147483647"]),
        ("2147483648", []),
        ("\N{ARABIC-INDIC DIGIT SEVEN}", []),
        ("-7", []),
        ("seven", []),
    ],
)
async def test_node_that_is_no_partition_is_no_change(number: str, partitions: list[str]) -> None:
    changes = TreeChanges(cast(Client, NoServer()))
    position = (await changes.read(None, last=False)).position

    changes.on_write(f"/brokers/topics/orders/partitions/{number}/state")

    assert [str(name) for name in (await changes.read(position, last=False)).partitions] == partitions
