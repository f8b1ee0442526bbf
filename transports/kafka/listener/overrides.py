"""Limits of connections of single addresses. Source: Kafka's max.connections.per.ip.overrides."""

from collections.abc import Mapping
from typing import Final

from kactl.model.errors import BadConfig
from kactl.runtime.addresses import group_of
from kactl.runtime.resolver import resolve

# For a name: as long as a resolver whose first server is down takes.
_LOOK_UP_S: Final = 15.0


async def by_address(overrides: Mapping[str, int]) -> dict[str, int]:
    """Returns limits by address, and for IPv6 by network, of limits by address or name. Names are looked up once.

    Raises:
        BadConfig: a name has no address.
    """
    limits = {}
    for host, limit in overrides.items():
        try:
            found = await resolve(host, 0, limit_s=_LOOK_UP_S)
        except (OSError, UnicodeError) as error:
            reason = f"{host!r} has no address ({error}): write an address, or a name that this host can look up"
            raise BadConfig("kafka.max-connections-per-ip-overrides", reason) from None
        limits.update({group_of(resolved.host): limit for resolved in found})
    return limits
