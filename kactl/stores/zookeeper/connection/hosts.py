"""Where servers are: what a connect string names, and the addresses behind its names."""

import asyncio
import ipaddress
import re
import socket
from typing import Final, NamedTuple

from kactl.errors import BadConfig

PORT: Final = 2181
_PORT_MAX: Final = 65_535
_HOST: Final = re.compile(r"(?:\[(?P<ipv6>[0-9a-fA-F:.]+)\]|(?P<name>[^:\[\]\s/]+))(?::(?P<port>[0-9]{1,5}))?")


class Host(NamedTuple):
    """By name or by address."""

    name: str
    port: int

    def __str__(self) -> str:
        return f"[{self.name}]:{self.port}" if ":" in self.name else f"{self.name}:{self.port}"


def parse(hosts: str) -> list[Host]:
    """Raises BadConfig unless all of it can be read."""
    found = []
    for text in hosts.split(","):
        matched = _HOST.fullmatch(text.strip())
        if matched is None or not 0 < int(matched["port"] or PORT) <= _PORT_MAX:
            raise BadConfig("connect", f"{text!r} is no server: write host:port, as in 127.0.0.1:2181 or [::1]:2181")
        found.append(Host(matched["ipv6"] or matched["name"], int(matched["port"] or PORT)))
    return found


async def addresses(host: Host) -> list[Host]:
    """All servers behind a name, in the order in which the resolver gives them; an address is its own.

    Raises:
        OSError: nobody knows the name.
    """
    try:
        ipaddress.ip_address(host.name)
    except ValueError:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host.name, host.port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(Host(str(each[4][0]), host.port) for each in found))
    return [host]
