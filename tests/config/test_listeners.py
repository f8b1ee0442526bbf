"""Where kactl listens for brokers and tools, how it is found there, and what is said of addresses that are none."""

from pathlib import Path

import pytest

from kactl.config.file import load
from kactl.errors import BadConfig
from kactl.model import Endpoint

INTERNAL = Endpoint("INTERNAL", "127.0.0.1", 9190)
CLIENT = Endpoint("CLIENT", "::1", 9191)
BOTH = 'listeners = ["INTERNAL://127.0.0.1:9190", "CLIENT://[::1]:9191"]'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kactl.toml"


def written(file: Path, *lines: str) -> Path:
    file.write_text("\n".join(("node-id = 9", "[kafka]", *lines)))
    return file


def test_without_listeners_nobody_is_listened_to_and_nobody_finds_us(file: Path) -> None:
    kafka = load(written(file)).kafka

    assert kafka.endpoints == kafka.advertised == ()
    assert (kafka.num_partitions, kafka.default_replication_factor) == (1, 1)


def test_who_listens_is_found_on_all_of_it_unless_it_says_where(file: Path) -> None:
    everywhere = load(written(file, BOTH)).kafka
    internal = load(written(file, BOTH, 'visible-on = ["INTERNAL"]')).kafka
    nowhere = load(written(file, BOTH, "visible-on = []")).kafka

    assert everywhere.endpoints == internal.endpoints == nowhere.endpoints == (INTERNAL, CLIENT)
    assert everywhere.advertised == (INTERNAL, CLIENT)
    assert internal.advertised == (INTERNAL,)
    assert nowhere.advertised == ()


def test_another_address_can_be_told_than_the_one_listened_on(file: Path) -> None:
    kafka = load(
        written(
            file,
            'listeners = ["INTERNAL://0.0.0.0:9190", "CLIENT://[::1]:9191"]',
            'advertised-listeners = ["INTERNAL://kactl.example.org:19190"]',
        )
    ).kafka

    assert kafka.endpoints == (Endpoint("INTERNAL", "0.0.0.0", 9190), CLIENT)
    assert kafka.advertised == (Endpoint("INTERNAL", "kactl.example.org", 19190), CLIENT)


def test_an_address_of_everywhere_needs_no_other_where_nobody_is_told_of_it(file: Path) -> None:
    kafka = load(written(file, 'listeners = ["INTERNAL://0.0.0.0:9190"]', "visible-on = []")).kafka

    assert kafka.advertised == ()


def test_lists_are_written_with_commas_in_the_environment(file: Path) -> None:
    env = {
        "KACTL_KAFKA__LISTENERS": "INTERNAL://127.0.0.1:9190, CLIENT://[::1]:9191",
        "KACTL_KAFKA__VISIBLE_ON": "CLIENT",
        "KACTL_KAFKA__CONTROLLER_IDS": "10,11",
    }
    kafka = load(written(file), env).kafka
    none = load(written(file, BOTH), {"KACTL_KAFKA__VISIBLE_ON": ""}).kafka

    assert kafka.endpoints == (INTERNAL, CLIENT)
    assert kafka.advertised == (CLIENT,)
    assert kafka.controller_ids == (10, 11)
    assert none.advertised == ()


@pytest.mark.parametrize(
    ("line", "key", "said"),
    [
        ('listeners = ["127.0.0.1:9190"]', "listeners", "write it as INTERNAL://127.0.0.1:9190"),
        ('listeners = ["INTERNAL://127.0.0.1"]', "listeners", "write it as INTERNAL://127.0.0.1:9190"),
        ('listeners = ["INTERNAL://127.0.0.1:65536"]', "listeners", "write it as INTERNAL://127.0.0.1:9190"),
        ('listeners = ["://127.0.0.1:1"]', "listeners", "write it as INTERNAL://127.0.0.1:9190"),
        ('listeners = ["A://h:1", "A://h:2"]', "listeners", "A is named twice"),
        ('listeners = "A://h:1"', "listeners", "Expected `array`"),
        ('listeners = ["A://0.0.0.0:1"]', "advertised-listeners", "brokers cannot connect to 0.0.0.0"),
        ('listeners = ["A://[::]:1"]', "advertised-listeners", "brokers cannot connect to ::"),
        ('advertised-listeners = ["A://h:1"]', "advertised-listeners", "A: there is no such name in kafka.listeners"),
        ('listeners = ["A://h:1"]\nadvertised-listeners = ["A"]', "advertised-listeners", "'A' is not a listener"),
        ('visible-on = ["A"]', "visible-on", "A: there is no such name in kafka.listeners"),
        ("controller-ids = [-1]", "controller-ids", ">= 0"),
        ("default-replication-factor = 40000", "default-replication-factor", "<= 32767"),
        ("num-partitions = 0", "num-partitions", ">= 1"),
        ("max-connections = 0", "max-connections", ">= 1"),
        ("socket-request-max-bytes = 7", "socket-request-max-bytes", ">= 1024"),
        ("max-connections-per-ip = 0", "max-connections-per-ip", ">= 1"),
        ("request-max-bytes = 1024", "request-max-bytes", ">= 65536"),
        ("broker-request-max-bytes = 1024", "broker-request-max-bytes", ">= 65536"),
        ('broker-networks = ["10.0.0.1/24"]', "broker-networks", "write it as 10.0.0.0/24 or fd00::/64"),
    ],
)
def test_what_cannot_be_used_is_named_with_what_would_be_right(file: Path, line: str, key: str, said: str) -> None:
    with pytest.raises(BadConfig) as refused:
        load(written(file, line))

    assert f"kafka.{key}: " in str(refused.value)
    assert said in str(refused.value)
