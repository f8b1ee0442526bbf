"""Addresses that only programs of this machine can reach, and the unit in which addresses of peers are limited."""

import ipaddress
import socket
from typing import Final

# IPv6 networks are assigned as /64: a peer can use any address of its network.
_IPV6_PREFIX: Final = 64


def is_loopback(address: str) -> bool:
    """Returns whether an address is a loopback address, including IPv4 mapped to IPv6."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback


def is_local(host: str) -> bool:
    """Returns whether each address of a host, which a server would listen on, is a loopback address."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):  # the latter for names that are none, such as a..b
        return False
    return all(is_loopback(str(address[0])) for *_, address in found)


def group_of(address: str) -> str:
    """Returns the unit that counts as one address: the address itself, or its network in IPv6. Keeps other text."""
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _IPV6_PREFIX), strict=False))
