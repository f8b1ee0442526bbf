"""Clients that identify themselves by a certificate, which TLS has verified."""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from kactl.config.settings import ApiConfig
from kactl.security.access.der import MalformedCertificate
from kactl.security.access.distinguished_name import subject_of
from kactl.security.access.principal_rules import PrincipalRules
from kactl.security.access.role import Role
from kactl.security.tls.server_tls import ServerTls, certificate_of, has_valid_certificate

_SCHEME: Final = "kactl"
_USER: Final = "user"


class Holder(NamedTuple):
    """The holder of a certificate. Role NONE if the configuration names none."""

    name: str
    role: Role


class Certificates:
    """Names and roles of the holders of certificates.

    The name is that of the first alternative name `kactl://<cluster>/user/<name>` of this cluster, as `kactl pki` makes
    them, or else the subject, in the form in which Kafka writes it, after the rules.

    Args:
        roles: by name.
        accepts: returns whether the certificate of a connection's client still counts.
    """

    def __init__(
        self,
        cluster: str,
        roles: Mapping[str, str],
        rules: PrincipalRules,
        accepts: Callable[[ssl.SSLObject], bool] = has_valid_certificate,
    ) -> None:
        self._accepts = accepts
        self._cluster = cluster
        self._roles = {name: Role.of(role) for name, role in roles.items()}
        self._rules = rules

    @classmethod
    def of(cls, api: ApiConfig, cluster: str, tls: ServerTls | None) -> "Certificates":
        """Returns those of a configuration."""
        accepts = has_valid_certificate if tls is None else tls.accepts
        return cls(cluster, api.certificates, PrincipalRules(api.tls.principal_rules), accepts)

    def still_count(self, transport: asyncio.BaseTransport | None) -> bool:
        """Returns whether the client's certificate, which was verified when its connection began, would be accepted
        now. True for a client without a certificate, and False if the connection has failed.
        """
        connection = _encryption(transport)
        return connection is None or self._accepts(connection)

    def find(self, transport: asyncio.BaseTransport | None) -> Holder | None:
        """Returns the holder of the client's certificate; None if it has sent none, no rule names it, or the connection
        has failed.
        """
        try:
            encoded = peer_certificate(transport)
        except ConnectionResetError:
            return None
        if transport is None or encoded is None:
            return None
        names: Any = (transport.get_extra_info("peercert") or {}).get("subjectAltName", ())
        name = self._user([value for kind, value in names if kind == "URI"]) or self._subject(encoded)
        return None if not name else Holder(name, self._roles.get(name, Role.NONE))

    def _user(self, uris: list[str]) -> str:
        for uri in uris:
            try:
                parts = urlsplit(uri)
            except ValueError:
                continue
            kind, _, name = parts.path.removeprefix("/").partition("/")
            if parts.scheme == _SCHEME and unquote(parts.netloc) == self._cluster and kind == _USER and name:
                return unquote(name)
        return ""

    def _subject(self, encoded: bytes) -> str:
        try:
            return self._rules.name_of(subject_of(encoded)) or ""
        except MalformedCertificate:
            return ""


def peer_certificate(transport: asyncio.BaseTransport | None) -> bytes | None:
    """Returns the certificate of a client in DER; None if it has sent none.

    Raises:
        ConnectionResetError: the connection has failed.
    """
    connection = _encryption(transport)
    return None if connection is None else certificate_of(connection)


def _encryption(transport: asyncio.BaseTransport | None) -> ssl.SSLObject | None:
    """Returns the TLS of a connection; None for one in clear text."""
    connection: ssl.SSLObject | None = None if transport is None else transport.get_extra_info("ssl_object")
    return connection
