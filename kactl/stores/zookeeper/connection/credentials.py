"""Encryption of connections to ZooKeeper, and the identity that they present."""

import base64
import dataclasses
import hashlib
import ssl
from typing import Final, Literal, get_args

from kactl.model.errors import BadConfig
from kactl.runtime.secret import Secret
from kactl.security.sasl import ClientMechanism, DigestMd5, SaslMechanism
from kactl.security.tls.outgoing import rejected_certificate, require_verification

Scheme = Literal["sasl", "digest"]
SCHEMES: Final[tuple[Scheme, ...]] = get_args(Scheme)

# ZooKeeper's servers accept these names in a digest-uri, wherever they run.
_SERVICE = "zookeeper"
_HOST = "zk-sasl-md5"


@dataclasses.dataclass(frozen=True, slots=True)
class Credentials:
    """What a connection needs to be accepted. The default is a connection in clear text without an identity.

    Args:
        tls: settings of the encryption; the server's certificate is compared with the host in the connect string.
        username, password: of the identity.
        scheme: sasl proves that it knows the password by DIGEST-MD5, as brokers do. digest sends the password itself,
            which any server accepts: it is the name of an identity that others cannot guess.
        mechanism: another mechanism of SASL than DIGEST-MD5, in place of username and password.

    Raises:
        BadConfig: only one of username and password is given, one beside a mechanism, a name that the scheme cannot
            have, or TLS settings that compare no host name.
    """

    tls: ssl.SSLContext | None = None
    username: str | None = None
    password: Secret | None = None
    scheme: Scheme = "sasl"
    mechanism: SaslMechanism | None = None

    def __post_init__(self) -> None:
        if (self.username is None) != (self.password is None):
            raise BadConfig("username", "needs a password, and a password needs a username")
        if self.mechanism is not None and (self.username is not None or self.scheme != "sasl"):
            raise BadConfig("mechanism", "takes the place of username and password, and its scheme is sasl")
        if self.username == "":
            raise BadConfig("username", "is empty")
        if self.scheme not in SCHEMES:
            raise BadConfig("scheme", f"{self.scheme!r} is not one of {', '.join(SCHEMES)}")
        if self.scheme == "digest" and (self.username is None or ":" in self.username):
            raise BadConfig("username", "digest needs one, without a colon")
        require_verification(self.tls)

    @property
    def is_default(self) -> bool:
        return self.tls is None and self.username is None and self.mechanism is None

    @property
    def identity(self) -> str:
        """What servers know this connection by, as far as it is known here; for messages."""
        if self.mechanism is not None:
            return f"sasl:{self.mechanism.identity}"
        return "no identity" if self.username is None else f"{self.scheme}:{self.username}"

    def login(self, host: str) -> ClientMechanism | None:
        """Returns the client's side of a new login by SASL to a server; None without one."""
        if self.mechanism is not None:
            return self.mechanism.login(host)
        if self.username is None or self.password is None or self.scheme != "sasl":
            return None
        return DigestMd5(self.username, self.password.reveal().decode(), service=_SERVICE, host=_HOST)

    @property
    def digest(self) -> bytes | None:
        """What scheme digest sends; None without it."""
        if self.username is None or self.password is None or self.scheme != "digest":
            return None
        return self.username.encode() + b":" + self.password.reveal()

    @property
    def digest_id(self) -> tuple[str, str] | None:
        """Scheme and id in permissions; None without scheme digest. Source: DigestAuthenticationProvider."""
        secret = self.digest
        if secret is None:
            return None
        hashed = hashlib.sha1(secret, usedforsecurity=False).digest()  # the server's choice
        return "digest", f"{self.username}:{base64.b64encode(hashed).decode()}"


NONE = Credentials()


class NotAuthenticated(ConnectionError):
    """The server has rejected the credentials: trying again at once is useless."""


class NoSession(ConnectionError):
    """The server closed the connection before it granted a session."""


def failure(error: OSError, tls: ssl.SSLContext | None) -> str:
    """Returns why a connection could not be made. Ports for TLS and for clear text close each other's connections."""
    if tls is None and isinstance(error, NoSession):
        return f"{error}: is this the secure port (secureClientPort), which needs tls?"
    if rejected := rejected_certificate(error):
        return rejected
    if isinstance(error, ssl.SSLEOFError | ConnectionResetError | ssl.SSLZeroReturnError) or (
        isinstance(error, ssl.SSLError) and error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
    ):
        return "it ended the TLS handshake: is this the secure port (secureClientPort)?"
    return str(error)
