"""Which version of each request brokers expect at an inter-broker protocol version (ibp).

Brokers are not asked what they understand: the ibp that all of them are configured with decides.
"""

import re
from typing import Final

import msgspec

from kactl.errors import BadConfig


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """The versions to speak. All of them are flexible ones: compact lengths and tagged fields."""

    leader_and_isr: int
    update_metadata: int
    stop_replica: int


# Release -> the last step of its ibp; a release alone (`2.8`) stands for its last step (`2.8-IV1`).
# Source: Kafka's metadata versions, as far as they can run with ZooKeeper.
_LAST_STEP: Final = {
    (2, 6): 0,
    (2, 7): 2,
    (2, 8): 1,
    (3, 0): 1,
    (3, 1): 0,
    (3, 2): 0,
    (3, 3): 3,
    (3, 4): 0,
    (3, 5): 2,
    (3, 6): 2,
    (3, 7): 4,
    (3, 8): 0,
    (3, 9): 0,
}

# From which (major, minor, step) on; the highest that is not above the ibp counts.
_SPOKEN: Final = {
    (2, 6, 0): Versions(leader_and_isr=4, update_metadata=6, stop_replica=3),
    (2, 8, 1): Versions(leader_and_isr=5, update_metadata=7, stop_replica=3),  # topic ids
    (3, 2, 0): Versions(leader_and_isr=6, update_metadata=7, stop_replica=3),  # the leader's recovery
    (3, 4, 0): Versions(leader_and_isr=7, update_metadata=8, stop_replica=4),  # whether the controller is a KRaft one
}

_IBP: Final = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(?:-IV([0-9]{1,4})|(?:\.[0-9]{1,4})*)")


def versions_for(ibp: str) -> Versions:
    """The versions for `ibp`, written as in a broker's configuration: `2.6`, `2.8-IV0`, `3.9.1`.

    Raises:
        BadConfig: no ibp, or one whose requests we do not encode.
    """
    matched = _IBP.fullmatch(ibp)
    if matched is None:
        raise BadConfig("kafka.ibp", f"{ibp!r} is no inter-broker protocol version: write it as 2.6 or 3.4-IV0")
    release = (int(matched[1]), int(matched[2]))
    last = _LAST_STEP.get(release)
    step = last if matched[3] is None else int(matched[3])
    if last is None or step is None or step > last:
        raise BadConfig(
            "kafka.ibp",
            f"{ibp!r} is not supported: set it, as well as inter.broker.protocol.version of every broker, "
            "to one from 2.6 to 3.9",
        )
    return _SPOKEN[max(since for since in _SPOKEN if since <= (*release, step))]
