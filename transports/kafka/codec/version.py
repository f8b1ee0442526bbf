"""Which version of each request brokers expect at the protocol level of their cluster."""

from typing import Final

import msgspec

from kactl.config.protocol_level import ProtocolLevel


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """The versions to speak. All of them are flexible ones: compact lengths and tagged fields."""

    leader_and_isr: int
    update_metadata: int
    stop_replica: int


# From which level on; the highest that is not above the cluster's counts.
_SPOKEN: Final = {
    ProtocolLevel(2, 6): Versions(leader_and_isr=4, update_metadata=6, stop_replica=3),
    ProtocolLevel(2, 8, 1): Versions(leader_and_isr=5, update_metadata=7, stop_replica=3),  # topic ids
    ProtocolLevel(3, 2): Versions(leader_and_isr=6, update_metadata=7, stop_replica=3),  # the leader's recovery
    # Whether the controller is a KRaft one.
    ProtocolLevel(3, 4): Versions(leader_and_isr=7, update_metadata=8, stop_replica=4),
}


def versions_for(level: ProtocolLevel) -> Versions:
    """The versions for `level`, which is not below the lowest that can be parsed."""
    return _SPOKEN[max(since for since in _SPOKEN if since <= level)]
