"""Listening sockets of all servers.

| host           | listens on                                                                       |
| -------------- | -------------------------------------------------------------------------------- |
| `::`           | all addresses of both families; of IPv4 alone if this host has no IPv6           |
| `0.0.0.0`      | all addresses of IPv4                                                            |
| another number | this address                                                                     |
| a name         | all of its addresses that this host has, as `localhost` is one or two            |

Port 0 is one free port for all of them.
"""

import errno
import socket
from collections.abc import Sequence
from typing import Any, Final

from .addresses import host_and_port, is_loopback, is_wildcard
from .logs import logger
from .resolver import Resolved, addresses_of, is_numeric

log = logger(__name__)

# A family or an address that this host does not have.
_ABSENT: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT})
# The free port of one family may be in use in the other one.
_PORTS_TRIED: Final = 16


def is_local(host: str) -> bool:
    """Returns whether each address of a host, which a server would listen on, is a loopback address."""
    try:
        return all(is_loopback(each.host) for each in addresses_of(host, 0))
    except OSError:
        return False


def listening_sockets(host: str, port: int, *, backlog: int) -> list[socket.socket]:
    """Look up a host, and listen on its addresses. Blocks; see `listen_on`."""
    return listen_on(addresses_of(host, port), port, backlog=backlog, is_name=not is_numeric(host))


def listen_on(hosts: Sequence[Resolved], port: int, *, backlog: int, is_name: bool) -> list[socket.socket]:
    """Returns listening sockets that do not block, one for each address.

    Args:
        is_name: whether the addresses are those of a name, so that one that this host does not have is left out.

    Raises:
        OSError: an address cannot be listened on. All sockets are closed.
    """
    for attempt in range(_PORTS_TRIED):
        try:
            return _listen_on(hosts, port, backlog=backlog, is_name=is_name)
        except OSError as error:
            if port or error.errno != errno.EADDRINUSE or attempt == _PORTS_TRIED - 1:
                raise
    raise AssertionError("unreachable")


def _listen_on(hosts: Sequence[Resolved], port: int, *, backlog: int, is_name: bool) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    absent: OSError | None = None
    try:
        for family, sockaddr in hosts:
            try:
                sockets.append(_bound(family, (sockaddr[0], port, *sockaddr[2:]), backlog))
            except OSError as error:
                if not is_name or error.errno not in _ABSENT:
                    raise
                log.warning("this host does not have %s: %s", sockaddr[0], error.strerror)
                absent = error
            else:
                port = port or sockets[0].getsockname()[1]
        if absent is not None and not sockets:
            raise absent
    except BaseException:
        for listening in sockets:
            listening.close()
        raise
    return sockets


def _bound(family: int, sockaddr: tuple[Any, ...], backlog: int) -> socket.socket:
    is_for_both = family == socket.AF_INET6 and is_wildcard(sockaddr[0])
    try:
        return _opened(family, sockaddr, backlog, dual_stack=is_for_both)
    except OSError as error:
        if not is_for_both or error.errno not in _ABSENT:
            raise
        log.warning("%s is listened on as 0.0.0.0: this host has no IPv6", host_and_port(*sockaddr[:2]))
        return _opened(socket.AF_INET, ("0.0.0.0", sockaddr[1]), backlog, dual_stack=False)


def _opened(family: int, sockaddr: tuple[Any, ...], backlog: int, *, dual_stack: bool) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # The system's default (net.ipv6.bindv6only) does not count.
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not dual_stack)
        listening.bind(sockaddr)
        listening.listen(backlog)
    except BaseException:
        listening.close()
        raise
    return listening
