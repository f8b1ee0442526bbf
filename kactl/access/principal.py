"""Identities."""

from typing import Final, NamedTuple


class Principal(NamedTuple):
    """An identity, and where it connects from.

    Attributes:
        name: as Kafka writes it, as in `User:alice`.
        host: the peer's address as text; the hosts of ACLs are compared with it.
        is_authenticated: whether the peer has proved the identity.
    """

    name: str
    host: str
    is_authenticated: bool


# The name of peers that prove no identity.
ANONYMOUS: Final = "User:ANONYMOUS"
