"""Protocol level of a cluster: the version that all brokers are configured to use, and the features that depend on it.

Brokers do not negotiate; their `inter.broker.protocol.version`, the same on all of them, decides. Each feature of a
level has a named property here, so that no other module compares levels.

Source: Kafka's metadata versions, as far as they can run with ZooKeeper.
"""

import re
from typing import Final

import msgspec

from kactl.model.errors import BadConfig

_WRITTEN: Final = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(?:-IV([0-9]{1,4})|(?:\.[0-9]{1,4})*)")

# Release -> its last step; a release alone (`2.8`) means this step (`2.8-IV1`).
LAST_STEP: Final = {
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


class ProtocolLevel(msgspec.Struct, frozen=True, order=True):
    """Release and step, as in 2.8-IV1; a later one is greater."""

    major: int
    minor: int
    step: int = 0

    @classmethod
    def parse(cls, text: str) -> "ProtocolLevel":
        """Returns the level in the notation of a broker's configuration: `2.6`, `2.8-IV0`, `3.9.1`.

        Raises:
            BadConfig: there is no such level, or it is not supported.
        """
        matched = _WRITTEN.fullmatch(text)
        if matched is None:
            raise BadConfig(
                "kafka.ibp", f"{text!r} is not an inter-broker protocol version: write it as 2.6 or 3.4-IV0"
            )
        major, minor = int(matched[1]), int(matched[2])
        last = LAST_STEP.get((major, minor))
        step = last if matched[3] is None else int(matched[3])
        if last is None or step is None or step > last:
            raise BadConfig(
                "kafka.ibp",
                f"{text!r} is not supported: set it, as well as inter.broker.protocol.version of every broker, "
                "to one from 2.6 to 3.9",
            )
        return cls(major, minor, step)

    @property
    def feature_versioning(self) -> bool:
        """Whether features are finalized in the store."""
        return self >= ProtocolLevel(2, 7)

    @property
    def feature_format(self) -> int:
        """The format of the stored entry of finalized features."""
        return 2 if self >= ProtocolLevel(3, 3) else 1

    @property
    def alter_partition(self) -> bool:
        """Whether leaders propose their ISRs to the controller; below this level, they write them."""
        return self >= ProtocolLevel(2, 7, 2)

    @property
    def controller_in_registrations(self) -> bool:
        """Whether brokers may look for the controller among the registrations: those up to 2.8 do."""
        return self < ProtocolLevel(3, 0)

    @property
    def topic_ids(self) -> bool:
        """Whether topics have ids."""
        return self >= ProtocolLevel(2, 8)

    @property
    def recovery(self) -> bool:
        """Whether uncleanly elected leaders are instructed to recover."""
        return self >= ProtocolLevel(3, 2)


# The level among participants, and the latest that most Kafka clusters with ZooKeeper can be upgraded to.
LATEST: Final = ProtocolLevel(3, 9)
