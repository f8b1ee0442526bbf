"""Versions of the requests that brokers expect at the protocol level of their cluster."""

from typing import Final

import msgspec

from kactl.config.protocol_level import ProtocolLevel


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """Versions of the three requests. All are flexible versions, with compact lengths and tagged fields."""

    leader_and_isr: int
    update_metadata: int
    stop_replica: int


# By the first level; the entry with the highest level that is not above the cluster's level applies.
_SPOKEN: Final = {
    ProtocolLevel(2, 6): Versions(leader_and_isr=4, update_metadata=6, stop_replica=3),
    ProtocolLevel(2, 8, 1): Versions(leader_and_isr=5, update_metadata=7, stop_replica=3),  # topic ids
    ProtocolLevel(3, 2): Versions(leader_and_isr=6, update_metadata=7, stop_replica=3),  # the leader's recovery
    # With a field for a KRaft controller.
    ProtocolLevel(3, 4): Versions(leader_and_isr=7, update_metadata=8, stop_replica=4),
}


def versions_for(level: ProtocolLevel) -> Versions:
    """Returns the versions for `level`, which is at least the lowest supported level."""
    return _SPOKEN[max(since for since in _SPOKEN if since <= level)]
