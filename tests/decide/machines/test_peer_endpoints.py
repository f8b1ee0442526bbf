"""Addresses at which participants can be reached: which of them are usable."""

import pytest

from kactl.decide.machines.remote_sessions import is_loopback, why_unusable
from kactl.model import Endpoint


def peer(host: str) -> Endpoint:
    return Endpoint("PEER", host, 7373)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_address_of_all_of_a_host_is_unusable(host: str) -> None:
    assert "give advertise=" in (why_unusable(peer(host)) or "")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_is_usable_among_participants_of_one_host(host: str) -> None:
    assert is_loopback(host)
    assert why_unusable(peer(host), [peer("127.0.0.1"), peer("::1")]) is None
    assert "10.0.0.7:7373" in (why_unusable(peer(host), [peer("127.0.0.1"), peer("10.0.0.7")]) or "")


@pytest.mark.parametrize("host", ["10.0.0.7", "fe80::1", "node-7.example"])
def test_other_addresses_are_usable_whatever_others_have(host: str) -> None:
    assert not is_loopback(host)
    assert why_unusable(peer(host), [peer("127.0.0.1"), peer("10.0.0.8")]) is None
