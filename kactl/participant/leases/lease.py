"""The lease of a participant, which all its leaderships share."""

from typing import Final


class Lease:
    """The right to act in a leadership until a time of `Clock.lease_ns`.

    A lease that has lapsed is never extended: the next renewal begins another one. Whatever found it ended once finds
    it ended for ever.

    Attributes:
        ends_ns: the deadline. From this time on the lease has ended. It only rises, until the lease has ended.
    """

    __slots__ = ("ends_ns",)

    def __init__(self, ends_ns: int) -> None:
        self.ends_ns = ends_ns


# The lease of a leadership that has ended. Below every reading of a clock.
ENDED: Final = Lease(-(2**63))
