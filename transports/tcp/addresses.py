"""Addresses, and the rule for those that other hosts can reach."""

import ipaddress
from collections.abc import Sequence
from typing import Final, NamedTuple

from kactl.model.errors import BadConfig
from kactl.runtime.addresses import host_and_port, is_loopback
from kactl.runtime.resolver import Resolved

DEFAULT_PORT: Final = 7373
DEFAULT_LISTEN: Final = f"127.0.0.1:{DEFAULT_PORT}"
# Name of the listener in the address at which a participant can be reached.
PEER_LISTENER: Final = "PEER"


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return host_and_port(self.host, self.port)

    @classmethod
    def parse(cls, text: str, field: str) -> "Address":
        """Returns the address in text such as `host`, `host:7373`, `[::1]:7373` or `:0`.

        Raises:
            BadConfig: it is none.
        """
        host, port = text, str(DEFAULT_PORT)
        if text.startswith("["):
            host, bracket, rest = text[1:].partition("]")
            if not bracket or (rest and not rest.startswith(":")):
                raise BadConfig(field, f"{text!r} is no address: write it as host:{DEFAULT_PORT}")
            port = rest[1:] or port
        elif text.count(":") == 1:
            host, _, port = text.partition(":")
        elif ":" in text and not _is_ipv6(text):
            raise BadConfig(field, f"{text!r} is no address: write it as host:{DEFAULT_PORT}")
        if any(character.isspace() or character in "/@" for character in host) or not _can_be_resolved(host):
            raise BadConfig(field, f"{text!r} is no address: {host!r} is no host; write it as host:{DEFAULT_PORT}")
        if not port.isascii() or not port.isdecimal() or int(port) > 65_535:
            raise BadConfig(field, f"{text!r} is no address: {port!r} is no port; write it as host:{DEFAULT_PORT}")
        return cls(host or "127.0.0.1", int(port))


def _can_be_resolved(host: str) -> bool:
    """Returns whether the resolver accepts a name: it raises UnicodeError for empty and long labels."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


class Exposure(NamedTuple):
    """Protection of the traffic of a network.

    Attributes:
        allow_plaintext: the operator accepts traffic between hosts without TLS.
    """

    has_tls: bool
    has_secret: bool
    allow_plaintext: bool

    def check(self, hosts: Sequence[Resolved], field: str) -> bool:
        """Returns whether traffic to or from these addresses leaves the host without TLS.

        Raises:
            BadConfig: it would, and this is not allowed, or nothing at all authenticates the peers.
        """
        exposed = next((each.host for each in hosts if not is_loopback(each.host)), None)
        if self.has_tls or exposed is None:
            return False
        if not self.allow_plaintext:
            raise BadConfig(
                field,
                f"{exposed} is reachable from other hosts, and the network has no TLS: use 127.0.0.1, give tls=, or "
                "accept plain text with a secret and allow_plaintext=True",
            )
        if not self.has_secret:
            raise BadConfig(
                field,
                f"{exposed} is reachable from other hosts, and the network has neither TLS nor a secret: any program "
                "could register and read everything; give tls= or secret=",
            )
        return True
