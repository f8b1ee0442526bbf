"""Addresses, and the unit in which they are limited."""

import pytest

from kactl.runtime.addresses import group_of, is_loopback
from kactl.runtime.listening import is_local


@pytest.mark.parametrize(
    ("address", "group"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:0:1:ffff::7", "2001:db8:0:1::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("2001:db8:0:2::1", "2001:db8:0:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::1", "::/64"),
        ("unix:uid=0", "unix:uid=0"),
        ("2001:db8::1 via 10.0.0.5", "2001:db8::1 via 10.0.0.5"),
        ("", ""),
    ],
)
def test_group_is_the_network_that_a_peer_can_use(address: str, group: str) -> None:
    assert group_of(address) == group


@pytest.mark.parametrize(
    ("host", "expected"), [("127.0.0.9", True), ("::1", True), ("10.0.0.1", False), ("a..b", False), ("x" * 64, False)]
)
def test_host_is_local_if_all_of_its_addresses_are(host: str, expected: bool) -> None:
    assert is_local(host) == expected


def test_loopback_includes_mapped_addresses() -> None:
    assert [is_loopback(text) for text in ("::ffff:127.0.0.1", "::ffff:10.0.0.1", "localhost")] == [True, False, False]
