"""Identities of the peers of all interfaces.

One value travels from the connection with each request: to the decision about it, into the event that carries it out,
and into the audit trail. The code that handles a request sees neither headers nor certificates.
"""

from typing import Final, Literal

import msgspec

# application: by the program in which the API is mounted. token, unix: clients of the admin API. sasl: by a login to a
# Kafka listener. certificate: by the subject or a name of a client certificate. controller, participant, spectator,
# client: programs on the tcp network. anonymous: nothing is known but the address.
Kind = Literal[
    "application",
    "token",
    "unix",
    "certificate",
    "sasl",
    "controller",
    "participant",
    "spectator",
    "client",
    "anonymous",
]

_USER: Final = "User:"
# The name of peers of Kafka listeners that prove no identity.
ANONYMOUS: Final = f"{_USER}ANONYMOUS"
# Kinds whose names stand alone in logs.
_PLAIN: Final = frozenset({"application", "sasl", "anonymous"})


class Principal(msgspec.Struct, frozen=True):
    """An identity, and where it connects from.

    Attributes:
        name: on Kafka listeners as Kafka writes it, as in `User:alice`.
        groups: for the decisions of a host program.
        peer: the address of the peer as text, which the hosts of ACLs are compared with; `unix` for a Unix socket.
        method: how the peer has proved its identity: the mechanism of a login, or the kind of a credential; `claimed`
            if nothing proves it.
    """

    name: str
    kind: Kind = "application"
    groups: tuple[str, ...] = ()
    peer: str = ""
    method: str = ""

    @property
    def label(self) -> str:
        """The name for logs, events and audit trails, unique among the kinds. Names of Kafka have a type already."""
        if self.kind in _PLAIN or self.name.startswith(_USER):
            return self.name
        return f"{self.kind}:{self.name}"

    @property
    def caller(self) -> str:
        """The label, or the address of a peer without identity."""
        return self.peer if self.kind == "anonymous" and self.peer else self.label

    @property
    def is_authenticated(self) -> bool:
        """Whether the peer has an identity."""
        return self.kind != "anonymous"


def kafka_user(username: str, *, peer: str, method: str = "") -> Principal:
    """Returns the principal of a login to a Kafka listener."""
    return Principal(f"{_USER}{username}", "sasl", peer=peer, method=method)


def kafka_subject(name: str, *, peer: str) -> Principal:
    """Returns the principal of a client certificate on a Kafka listener."""
    return Principal(f"{_USER}{name}", "certificate", peer=peer, method="certificate")


def stranger(peer: str, name: str = "") -> Principal:
    """Returns the principal of a peer that has no identity."""
    return Principal(name, "anonymous", peer=peer)
