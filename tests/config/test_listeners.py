"""Listeners for brokers and tools: addresses, advertised entries and invalid values."""

from pathlib import Path

import pytest

from kactl.config.file import load
from kactl.model import Endpoint
from kactl.model.errors import BadConfig

INTERNAL = Endpoint("INTERNAL", "127.0.0.1", 9190)
CLIENT = Endpoint("CLIENT", "::1", 9191)
BOTH = 'listeners = ["INTERNAL://127.0.0.1:9190", "CLIENT://[::1]:9191"]'


def config_from(file: Path, *lines: str) -> Path:
    file.write_text("\n".join(("node-id = 9", "[kafka]", *lines)))
    return file


def test_without_listeners_nothing_is_bound_or_advertised(file: Path) -> None:
    kafka = load(config_from(file)).kafka

    assert kafka.endpoints == kafka.advertised == ()
    assert (kafka.num_partitions, kafka.default_replication_factor) == (1, 1)


def test_all_listeners_are_advertised_unless_restricted(file: Path) -> None:
    everywhere = load(config_from(file, BOTH)).kafka
    internal = load(config_from(file, BOTH, 'visible-on = ["INTERNAL"]')).kafka
    nowhere = load(config_from(file, BOTH, "visible-on = []")).kafka

    assert everywhere.endpoints == internal.endpoints == nowhere.endpoints == (INTERNAL, CLIENT)
    assert everywhere.advertised == (INTERNAL, CLIENT)
    assert internal.advertised == (INTERNAL,)
    assert nowhere.advertised == ()


def test_advertised_address_may_differ_from_the_bound_one(file: Path) -> None:
    kafka = load(
        config_from(
            file,
            'listeners = ["INTERNAL://0.0.0.0:9190", "CLIENT://[::1]:9191"]',
            'advertised-listeners = ["INTERNAL://kactl.example.org:19190"]',
        )
    ).kafka

    assert kafka.endpoints == (Endpoint("INTERNAL", "0.0.0.0", 9190), CLIENT)
    assert kafka.advertised == (Endpoint("INTERNAL", "kactl.example.org", 19190), CLIENT)


def test_wildcard_address_is_valid_if_it_is_not_advertised(file: Path) -> None:
    kafka = load(config_from(file, 'listeners = ["INTERNAL://0.0.0.0:9190"]', "visible-on = []")).kafka

    assert kafka.advertised == ()


def test_lists_in_the_environment_are_separated_by_commas(file: Path) -> None:
    env = {
        "KACTL_KAFKA__LISTENERS": "INTERNAL://127.0.0.1:9190, CLIENT://[::1]:9191",
        "KACTL_KAFKA__VISIBLE_ON": "CLIENT",
        "KACTL_KAFKA__CONTROLLER_IDS": "10,11",
    }
    kafka = load(config_from(file), env).kafka
    none = load(config_from(file, BOTH), {"KACTL_KAFKA__VISIBLE_ON": ""}).kafka

    assert kafka.endpoints == (INTERNAL, CLIENT)
    assert kafka.advertised == (CLIENT,)
    assert kafka.controller_ids == (10, 11)
    assert none.advertised == ()


@pytest.mark.parametrize(
    ("line", "key", "message"),
    [
        ('listeners = ["127.0.0.1:9190"]', "listeners", "write it as INTERNAL://127.0.0.1:9190"),
        ('listeners = ["INTERNAL://127.0.0.1"]', "listeners", "write it as INTERNAL://127.0.0.1:9190"),
        ('listeners = ["INTERNAL://127.0.0.1:65536"]', "listeners", "write it as INTERNAL://127.0.0.1:9190"),
        ('listeners = ["://127.0.0.1:1"]', "listeners", "write it as INTERNAL://127.0.0.1:9190"),
        ('listeners = ["A://h:1", "A://h:2"]', "listeners", "A is named twice"),
        ('listeners = "A://h:1"', "listeners", "write a list in square brackets"),
        ('listeners = ["A://0.0.0.0:1"]', "advertised-listeners", "brokers cannot connect to 0.0.0.0"),
        ('listeners = ["A://[::]:1"]', "advertised-listeners", "brokers cannot connect to ::"),
        ('advertised-listeners = ["A://h:1"]', "advertised-listeners", "A: there is no such name in kafka.listeners"),
        ('listeners = ["A://h:1"]\nadvertised-listeners = ["A"]', "advertised-listeners", "'A' is not a listener"),
        ('visible-on = ["A"]', "visible-on", "A: there is no such name in kafka.listeners"),
        ("controller-ids = [-1]", "controller-ids", "from 0 to"),
        ("default-replication-factor = 40000", "default-replication-factor", "to 32767"),
        ("num-partitions = 0", "num-partitions", "from 1 to"),
        ("max-connections = 0", "max-connections", "from 1 to"),
        ("socket-request-max-bytes = 7", "socket-request-max-bytes", "from 1024 to"),
        ("max-connections-per-ip = 0", "max-connections-per-ip", "0 admits no client: name addresses in"),
        ("max-connections-per-ip = -1", "max-connections-per-ip", "from 0 to"),
        ('max-connections-per-ip-overrides = {"10.0.0.1" = -1}', "max-connections-per-ip-overrides", "from 0 to"),
        ("request-max-bytes = 1024", "request-max-bytes", "from 65536 to"),
        ("broker-request-max-bytes = 1024", "broker-request-max-bytes", "from 65536 to"),
        ('broker-networks = ["10.0.0.1/24"]', "broker-networks", "write it as 10.0.0.0/24 or fd00::/64"),
    ],
)
def test_invalid_listener_is_rejected_with_a_correction(file: Path, line: str, key: str, message: str) -> None:
    with pytest.raises(BadConfig) as refused:
        load(config_from(file, line))

    assert f"kafka.{key}: " in str(refused.value)
    assert message in str(refused.value)
