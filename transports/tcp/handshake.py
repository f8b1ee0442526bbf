"""Handshake of the tcp network.

    dialer                                       listener
      ── Hello: versions, cluster, identity, nonce ──▶
      ◀── Challenge: the same, and its proof ─────────
      ── Proof ──────────────────────────────────────▶
      ◀── Welcome: version │ NotController │ an error ─

Each side compares the identity that the other one claims with its certificate, or checks its proof of the shared
secret. A proof covers everything that both sides have sent, so that nothing of it can be changed or used again.
"""

import contextlib
import secrets
from collections.abc import Callable
from typing import Annotated, Final, NamedTuple

import msgspec

from kactl.decide.messages.sessions import NotController
from kactl.model import NO_BROKER, NO_EPOCH
from kactl.model.errors import KactlError, MalformedMessage, NotAuthorized, ProtocolMismatch
from kactl.runtime.secret import Secret
from kactl.transports.tcp import wire

from .framing import Kind, Message
from .identity import (
    ANY_NAME,
    NONCE_BYTES,
    Identify,
    Identity,
    PeerCertificate,
    Role,
    identities,
    is_proof,
    proof,
)
from .link import Link, LinkClosed

# Versions of the protocol that this release speaks.
VERSION_MIN: Final = 1
VERSION_MAX: Final = 1
_SAME: Final = (
    "give the same secret= to all programs of the cluster; without one, those of one user on one host share "
    "network/secret in their state folder ($XDG_STATE_HOME/kactl)"
)
CONTROL, PEER, VERIFY, IDENTIFY = "control", "peer", "verify", "identify"

_Text = Annotated[str, msgspec.Meta(max_length=200)]
_Nonce = Annotated[bytes, msgspec.Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
_Id = Annotated[bytes, msgspec.Meta(max_length=64)]
_Version = Annotated[int, msgspec.Meta(ge=0, le=10_000)]


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Claims of one side: the first message of a dialer, and a part of the listener's `Challenge`.

    Attributes:
        role, name: the claimed identity.
        incarnation: of the participant's registration; empty for other roles.
        purpose: CONTROL, PEER, VERIFY, or IDENTIFY: to be given a broker id, by the welcome, and nothing more.
        target: name of the participant that a link other than CONTROL is for.
        silence_ms: the sender closes the link after so long without a frame.
        broker: the id that was given to a participant whose name is none.
    """

    minimum: _Version
    maximum: _Version
    software: _Text
    cluster: _Text
    role: Role
    name: _Text
    nonce: _Nonce
    incarnation: _Id = b""
    purpose: _Text = CONTROL
    target: _Text = ""
    silence_ms: Annotated[int, msgspec.Meta(gt=0, le=3_600_000)] = 3_000
    capabilities: Annotated[tuple[_Text, ...], msgspec.Meta(max_length=20)] = ()
    broker: int = NO_BROKER

    @property
    def identity(self) -> Identity:
        return Identity(self.cluster, self.role, self.name)


class Challenge(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Answer of a listener.

    Attributes:
        claims: its own Hello. The proofs cover the bytes, with fields that only a later version knows.
        proof: of the shared secret; empty without one.
    """

    claims: msgspec.Raw
    proof: _Id = b""


class Proof(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Proof of the dialer; empty without a secret."""

    proof: _Id = b""


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The link is open.

    Attributes:
        controller_epoch: of the controllership; NO_EPOCH from a participant, and from an earlier version.
        active_ms: how long it has lasted.
        broker: the id of a participant that has not chosen one.
    """

    version: _Version
    capabilities: Annotated[tuple[_Text, ...], msgspec.Meta(max_length=20)] = ()
    controller_epoch: int = NO_EPOCH
    active_ms: int = 0
    broker: int = NO_BROKER


_HELLO: Final = wire.Family(Hello)
_CHALLENGE: Final = wire.Family(Challenge)
_PROOF: Final = wire.Family(Proof)
_WELCOME: Final = wire.Family(Welcome, NotController)
_encode: Final = msgspec.msgpack.Encoder().encode


class Credentials(NamedTuple):
    """How one side proves its identity, and checks that of the other side."""

    cluster: str
    secret: Secret | None = None
    identify: Identify | None = None


def hello(
    identity: Identity,
    *,
    incarnation: bytes = b"",
    purpose: str = CONTROL,
    target: str = "",
    silence_ms: int,
    broker: int = NO_BROKER,
) -> Hello:
    """Returns a new message with a nonce of its own."""
    return Hello(
        VERSION_MIN,
        VERSION_MAX,
        software(),
        identity.cluster,
        identity.role,
        identity.name,
        secrets.token_bytes(NONCE_BYTES),
        incarnation,
        purpose,
        target,
        silence_ms,
        broker=broker,
    )


def software() -> str:
    """Returns the name and version of this software."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"kactl {version('kactl')}"
    except PackageNotFoundError:
        return "kactl"


async def dial(
    link: Link, ours: Hello, credentials: Credentials, expected: Callable[[Hello], str | None]
) -> tuple[Hello, Welcome | NotController]:
    """Perform the handshake of a connection that this side has opened.

    Args:
        expected: returns the fault of the listener's claims; None if there is none.

    Raises:
        LinkClosed, ProtocolMismatch, NotAuthorized, MalformedMessage: the link must not be used.
        KactlError: an error that the listener has sent.
    """
    sent = _send(link, ours)
    challenge: Challenge = wire.decode(await _receive(link), _CHALLENGE)
    theirs: Hello = wire.decode(challenge.claims, _HELLO)
    common_version(ours, theirs)
    if (wrong := expected(theirs)) is not None:
        raise NotAuthorized(f"{link.what}: {wrong}")
    check_certificate(link, theirs, credentials)
    values = (sent, bytes(challenge.claims))
    if credentials.secret is not None and not is_proof(challenge.proof, credentials.secret, "listener", *values):
        raise NotAuthorized(f"{link.what} does not know the shared secret of this program: {_SAME}")
    own = b"" if credentials.secret is None else proof(credentials.secret, "dialer", *values)
    with contextlib.suppress(LinkClosed):  # the reason is in a message that has arrived
        _send(link, Proof(own))
    return theirs, wire.decode(await _receive(link), _WELCOME)


async def accept(link: Link, answer: Callable[[Hello], Hello], credentials: Credentials) -> tuple[Hello, int]:
    """Perform the handshake of an accepted connection, up to the welcome. Returns the hello and the version.

    Args:
        answer: returns this side's claims. It may raise a KactlError.

    Raises:
        KactlError: the peer has been told why; the link must be closed.
    """
    try:
        received = await _receive(link)
        theirs: Hello = wire.decode(received, _HELLO)
        ours = answer(theirs)
        values = (received, _encode(ours))
        own = b"" if credentials.secret is None else proof(credentials.secret, "listener", *values)
        # Before anything is compared: the dialer names both sides in its error.
        _send(link, Challenge(msgspec.Raw(values[1]), own))
        version = common_version(ours, theirs)
        check_certificate(link, theirs, credentials)
        theirs_proof: Proof = wire.decode(await _receive(link), _PROOF)
        if credentials.secret is not None and not is_proof(theirs_proof.proof, credentials.secret, "dialer", *values):
            raise NotAuthorized(f"{theirs.identity} does not know the shared secret of {ours.identity}: {_SAME}")
    except (LinkClosed, MalformedMessage):
        raise
    except KactlError as error:
        refuse(link, error)
        raise
    return theirs, version


def welcome(
    link: Link, version: int, controller_epoch: int = NO_EPOCH, active_ms: int = 0, *, broker: int = NO_BROKER
) -> None:
    """Tell the dialer that the link is open; see `Welcome`."""
    _send(link, Welcome(version, controller_epoch=controller_epoch, active_ms=active_ms, broker=broker))


def redirect(link: Link, answer: NotController) -> None:
    """Tell the dialer where the active controller is."""
    _send(link, answer)


def refuse(link: Link, error: KactlError) -> None:
    """Tell the dialer why the link is closed."""
    if link.is_open:
        link.send(Message(Kind.HANDSHAKE, head=wire.encode(error), error=True))


def common_version(ours: Hello, theirs: Hello) -> int:
    """Returns the highest common version.

    Raises:
        ProtocolMismatch: there is none, or the clusters differ.
    """
    if ours.cluster != theirs.cluster:
        raise ProtocolMismatch(
            f"{theirs.identity} belongs to cluster {theirs.cluster!r}, and {ours.identity} to {ours.cluster!r}: "
            "give the same cluster= to both, or connect to another address"
        )
    version = min(ours.maximum, theirs.maximum)
    if version < max(ours.minimum, theirs.minimum):
        raise ProtocolMismatch(
            f"{theirs.identity} ({theirs.software}) speaks versions {theirs.minimum} to {theirs.maximum} of the "
            f"protocol, and {ours.identity} ({ours.software}) {ours.minimum} to {ours.maximum}: update the older one"
        )
    return version


def check_certificate(link: Link, theirs: Hello, credentials: Credentials) -> None:
    """Raises NotAuthorized if the link has a certificate that does not name the claimed identity."""
    found = link.peer_certificate()
    if found is None:
        return
    certificate = PeerCertificate.of(found)
    try:
        known = identities(certificate, credentials.identify)
    except Exception as error:
        raise NotAuthorized(f"the certificate of {link.what} names no identity: {error}") from error
    if theirs.name == ANY_NAME and any(one[:2] == theirs.identity[:2] for one in known):
        return
    if theirs.identity not in known:
        listed = ", ".join(map(str, known)) or "no identity of kactl"
        raise NotAuthorized(
            f"{link.what} claims to be {theirs.identity}, and its certificate names {listed}: give it the certificate "
            "of its own id, or the id of its certificate"
        )


def _send(link: Link, message: msgspec.Struct) -> bytes:
    """Send a message. Returns its bytes."""
    head = _encode(message)
    link.send(Message(Kind.HANDSHAKE, head=head))
    return head


async def _receive(link: Link) -> bytes:
    """Returns the next message. Raises the error that it contains, if it is one."""
    message = await link.next_message()
    if message.kind is not Kind.HANDSHAKE or message.tail:
        raise MalformedMessage(f"{link.what} sent a message of kind {message.kind.name} during the handshake")
    if message.error:
        raise wire.decode(message.head, wire.ERRORS)
    return bytes(message.head)
