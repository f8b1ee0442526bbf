"""Roles of the admin API."""

import enum
from typing import Final, Literal

RoleName = Literal["none", "viewer", "operator", "admin"]
_NAMES: Final[tuple[RoleName, ...]] = ("none", "viewer", "operator", "admin")


class Role(enum.IntEnum):
    """A role includes all smaller ones.

    NONE needs no identity: liveness, readiness, leadership. VIEWER reads. OPERATOR moves leaderships and replicas,
    which loses nothing. ADMIN creates and deletes, loses records knowingly, or stops processes.
    """

    NONE = 0
    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    @property
    def label(self) -> RoleName:
        return _NAMES[self]

    @classmethod
    def of(cls, label: str) -> "Role":
        """Returns the role of a name.

        Raises:
            ValueError: no role has this name.
        """
        for role in (cls.VIEWER, cls.OPERATOR, cls.ADMIN):
            if role.label == label:
                return role
        raise ValueError(f"{label!r} is not a role: use viewer, operator or admin")
