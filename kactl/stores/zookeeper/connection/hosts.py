"""Server addresses: parsing of a connect string."""

import re
from typing import Final, NamedTuple

from kactl.model.errors import BadConfig
from kactl.runtime.addresses import host_and_port

PORT: Final = 2181
_PORT_MAX: Final = 65_535
# Labels have 1 to 63 characters: the resolver raises UnicodeError for others.
_LABEL: Final = r"[^:\[\]\s/.]{1,63}"
_HOST: Final = re.compile(
    rf"(?:\[(?P<ipv6>[0-9a-fA-F:.]+)\]|(?P<name>{_LABEL}(?:\.{_LABEL})*\.?))(?::(?P<port>[0-9]{{1,5}}))?"
)


class Host(NamedTuple):
    """A server, by name or by address."""

    name: str
    port: int

    def __str__(self) -> str:
        return host_and_port(self.name, self.port)


def parse(hosts: str) -> list[Host]:
    """Returns the servers of a connect string. Raises BadConfig if any part is malformed."""
    servers = []
    for text in hosts.split(","):
        matched = _HOST.fullmatch(text.strip())
        if matched is None or not 0 < int(matched["port"] or PORT) <= _PORT_MAX:
            raise BadConfig("connect", f"{text!r} is no server: write host:port, as in 127.0.0.1:2181 or [::1]:2181")
        servers.append(Host(matched["ipv6"] or matched["name"], int(matched["port"] or PORT)))
    return servers
