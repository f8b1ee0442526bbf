"""Tests of connect strings and name resolution."""

import pytest

from kactl.errors import BadConfig
from kactl.stores.zookeeper.connection.hosts import Host, addresses, parse


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


@pytest.mark.anyio
async def test_name_can_resolve_to_several_addresses() -> None:
    assert await addresses(Host("127.0.0.9", 7)) == [Host("127.0.0.9", 7)]
    assert await addresses(Host("::1", 7)) == [Host("::1", 7)]
    found = await addresses(Host("localhost", 7))
    assert Host("127.0.0.1", 7) in found or Host("::1", 7) in found
    assert len(found) == len(set(found))
