"""Addresses of peers and hosts: their usual form, and those that only programs of this machine can reach.

A server on all addresses of both families sees IPv4 peers as IPv6 addresses (`::ffff:192.0.2.1`). Whatever is compared,
counted, stored or shown is the `plain_address`.
"""

import ipaddress
from typing import Final

# IPv6 networks are assigned as /64: a peer can use any address of its network.
_IPV6_PREFIX: Final = 64


def plain_address(host: str) -> str:
    """Returns an address in its usual form, an IPv4-mapped IPv6 address as IPv4, and any other text unchanged."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def is_loopback(address: str) -> bool:
    """Returns whether an address is a loopback address, including IPv4 mapped to IPv6."""
    try:
        return ipaddress.ip_address(plain_address(address)).is_loopback
    except ValueError:
        return False


def is_wildcard(host: str) -> bool:
    """Returns whether a host means all addresses of this one, which is no place to connect to."""
    try:
        return not host or ipaddress.ip_address(plain_address(host)).is_unspecified
    except ValueError:
        return False


def group_of(address: str) -> str:
    """Returns the unit that counts as one address: the address itself, or its network in IPv6. Keeps other text."""
    plain = plain_address(address)
    try:
        parsed = ipaddress.IPv6Address(plain)
    except ValueError:
        return plain
    return str(ipaddress.ip_network((parsed, _IPV6_PREFIX), strict=False))


def host_and_port(host: str, port: int) -> str:
    """Returns `host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
