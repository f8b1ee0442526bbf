"""Addresses at which participants can be reached by other participants."""

from collections.abc import Iterable

from kactl.model import Endpoint
from kactl.runtime import addresses


def is_loopback(host: str) -> bool:
    """Returns whether only programs of the same host can connect to a host."""
    return host == "localhost" or addresses.is_loopback(host)


def why_unusable(peer: Endpoint, others: Iterable[Endpoint] = ()) -> str | None:
    """Returns why other participants cannot use an address, with the remedy; None if they may.

    Args:
        others: the addresses of the other participants.
    """
    if addresses.is_wildcard(peer.host):
        return "it means all addresses of a host, and no program can connect to it: give advertise= the host's own"
    if is_loopback(peer.host):
        remote = next((other for other in others if not is_loopback(other.host)), None)
        if remote is not None:
            return (
                f"only programs of its own host can connect to it, and another participant advertises {remote.host}:"
                f"{remote.port}: give advertise= the host's own address"
            )
    return None
