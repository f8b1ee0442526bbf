"""Tests of connect strings."""

import pytest

from kactl.model.errors import BadConfig
from kactl.stores.zookeeper.connection.hosts import Host, parse


def test_hosts_are_names_or_addresses_with_optional_ports() -> None:
    found = parse("zk1.example:2182, 10.0.0.7,[::1]:2183,[fe80::1]")

    assert found == [Host("zk1.example", 2182), Host("10.0.0.7", 2181), Host("::1", 2183), Host("fe80::1", 2181)]
    assert [str(host) for host in found] == ["zk1.example:2182", "10.0.0.7:2181", "[::1]:2183", "[fe80::1]:2181"]


@pytest.mark.parametrize(
    "text", ["", "a,", "a:b", "a:0", "a:65536", "::1", "[::1", "a b:1", "a:1:2", "a:-1", "a..b", ".", "x" * 64]
)
def test_invalid_host_list_is_rejected(text: str) -> None:
    with pytest.raises(BadConfig, match="is no server: write host:port"):
        parse(text)
