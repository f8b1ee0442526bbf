"""Identities of programs, in certificates and in messages, and the shared secret.

A certificate names its identities as URIs, `kactl://<cluster>/<role>/<name>`, in its subject alternative names. With a
shared secret a program may claim any identity.
"""

import enum
import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import msgspec

from kactl.runtime.secret import Secret
from kactl.security.access import Principal

SCHEME: Final = "kactl"
SECRET_BYTES_MIN: Final = 16
NONCE_BYTES: Final = 32
# Claimed by a program whose name does not matter: any name in its certificate is accepted.
ANY_NAME: Final = ""


class Role(enum.Enum):
    CONTROLLER = "controller"
    PARTICIPANT = "participant"
    SPECTATOR = "spectator"
    CLIENT = "client"


class Identity(NamedTuple):
    """A program. The name is the id of a controller or a participant."""

    cluster: str
    role: Role
    name: str

    def __str__(self) -> str:
        return f"{SCHEME}://{quote(self.cluster, safe='')}/{self.role.value}/{quote(self.name, safe='')}"

    def principal(self, *, peer: str, method: str) -> Principal:
        """Returns the principal of a program with this identity."""
        return Principal(self.name, self.role.value, peer=peer, method=method)

    @classmethod
    def parse(cls, uri: str) -> "Identity":
        """Returns the identity that a URI names.

        Raises:
            ValueError: it names none.
        """
        parts = urlsplit(uri)
        path = parts.path.split("/")
        if parts.scheme != SCHEME or len(path) != 3 or path[0] or not (path[2] and parts.netloc):
            raise ValueError(f"{uri!r} is no identity: it is written as {SCHEME}://<cluster>/<role>/<name>")
        return cls(unquote(parts.netloc), Role(path[1]), unquote(path[2]))


class PeerCertificate(NamedTuple):
    """The verified certificate of a peer.

    Attributes:
        uris: the URIs among its subject alternative names.
        subject: as `ssl.SSLSocket.getpeercert` returns it.
    """

    uris: tuple[str, ...]
    subject: object = ()

    @classmethod
    def of(cls, found: Mapping[str, object]) -> "PeerCertificate":
        names = found.get("subjectAltName", ())
        uris = tuple(value for kind, value in names if kind == "URI") if isinstance(names, tuple) else ()
        return cls(uris, found.get("subject", ()))


def is_broker_id(name: str) -> bool:
    """Returns whether the name of a participant is its id, and not a name to which an id is given."""
    return name.isascii() and name.isdecimal()


Identify = Callable[[PeerCertificate], Identity]


def identities(certificate: PeerCertificate, identify: Identify | None) -> Sequence[Identity]:
    """Returns the identities of a certificate; those that `identify` finds, if it is given.

    Raises:
        TypeError: `identify` returned another value. It may raise any exception, too.
    """
    if identify is not None:
        found_one = identify(certificate)
        if not isinstance(found_one, Identity):
            raise TypeError(f"identify returned a {type(found_one).__name__}, and no Identity")
        return [found_one]
    found = []
    for uri in certificate.uris:
        try:
            found.append(Identity.parse(uri))
        except ValueError:
            continue  # of another system
    return found


def proof(secret: Secret, direction: str, *values: object) -> bytes:
    """Returns a proof that the sender knows the secret, for one handshake and one direction."""
    return hmac.new(secret.reveal(), msgspec.msgpack.encode(["kactl", direction, *values]), hashlib.sha256).digest()


def is_proof(given: bytes, secret: Secret, direction: str, *values: object) -> bool:
    return hmac.compare_digest(given, proof(secret, direction, *values))
