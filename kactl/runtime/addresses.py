"""Addresses that only programs of this machine can reach."""

import ipaddress
import socket


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
    except OSError:
        return False
    return all(is_loopback(str(address[0])) for *_, address in found)
