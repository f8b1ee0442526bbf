"""The configuration of all brokers: its node, the notifications of tools, and malformed content."""

import logging
from typing import Any

import pytest

from kactl.stores.base import Changed
from kactl.stores.formats import records
from kactl.stores.zookeeper import ZooKeeperStore
from tests.support.store_clients import EventRecorder

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

NODE = "/config/brokers/<default>"
NOTICES = "/config/changes"
TOLD = b'{"version":2,"entity_path":"brokers/<default>"}'


async def test_default_config_is_written_like_kafkas_tools(store: ZooKeeperStore, tree: Any) -> None:
    for value in ("true", "false"):
        await store.set_default_config({"unclean.leader.election.enable": value})

        assert tree.get(NODE)[0] == b'{"version":1,"config":{"unclean.leader.election.enable":"%s"}}' % value.encode()

    notices = sorted(tree.get_children(NOTICES))
    assert [name.rstrip("0123456789") for name in notices] == ["config_change_"] * 2
    assert [tree.get(f"{NOTICES}/{name}")[0] for name in notices] == [TOLD] * 2


@pytest.mark.parametrize("notice", [TOLD, b'{"version":1,"entity_type":"brokers","entity_name":"<default>"}'])
async def test_default_config_of_another_tool_is_read(store: ZooKeeperStore, tree: Any, notice: bytes) -> None:
    recorder = EventRecorder(store)
    tree.create(f"{NOTICES}/config_change_", TOLD, sequence=True)
    assert await store.default_config() == {}

    tree.create(NODE, b'{"version":1,"config":{"a":"b"}}')
    tree.create(f"{NOTICES}/config_change_", b'{"version":2,"entity_path":"brokers/1"}', sequence=True)
    tree.create(f"{NOTICES}/config_change_", notice, sequence=True)

    await recorder.wait_for(Changed.DEFAULT_CONFIG)
    assert await store.default_config() == {"a": "b"}
    assert recorder.events == []  # neither for earlier notifications, nor for the configuration of one broker


@pytest.mark.parametrize("data", [b"[]", b'{"config":{"a":1}}', b"\xff"])
async def test_malformed_default_config_is_logged_and_ignored(
    store: ZooKeeperStore, tree: Any, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    tree.create(NODE, data)

    with caplog.at_level(logging.WARNING, "kactl"):
        assert await store.default_config() == {}

    assert "the configuration of all brokers is malformed" in caplog.text
    await store.set_default_config({"a": "b"})
    assert await store.default_config() == {"a": "b"}


async def test_unreadable_default_config_is_logged_and_ignored(
    store: ZooKeeperStore, tree: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await store.set_default_config({"a": "b"})
    (acl,), _ = tree.get_acls(NODE)
    tree.set_acls(NODE, [acl._replace(perms=acl.perms & ~1)])  # permission 1: to read

    with caplog.at_level(logging.WARNING, "kactl"):
        assert await store.default_config() == {}

    assert "the configuration of all brokers could not be read" in caplog.text


async def test_node_without_data_is_an_empty_config(store: ZooKeeperStore, tree: Any) -> None:
    tree.create(NODE, None)

    assert await store.default_config() == {}


def test_notification_names_a_topic_or_all_brokers_or_neither() -> None:
    assert records.encode_default_config_change() == TOLD
    assert records.is_default_config_change(TOLD)
    assert records.decode_config_change(TOLD) is None
    assert not records.is_default_config_change(records.encode_config_change("orders"))
    assert not records.is_default_config_change(b'{"version":2,"entity_path":"brokers/1"}')
