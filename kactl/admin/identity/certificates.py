"""Clients that identify themselves by a certificate, which TLS has verified."""

import ssl
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from kactl.access.der import MalformedCertificate
from kactl.access.distinguished_name import subject_of
from kactl.access.principal_rules import PrincipalRules
from kactl.access.role import Role
from kactl.config.settings import ApiConfig

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
    """

    def __init__(self, cluster: str, roles: Mapping[str, str], rules: PrincipalRules) -> None:
        self._cluster = cluster
        self._roles = {name: Role.of(role) for name, role in roles.items()}
        self._rules = rules

    @classmethod
    def of(cls, api: ApiConfig, cluster: str) -> "Certificates":
        """Returns those of a configuration."""
        return cls(cluster, api.certificates, PrincipalRules(api.tls.principal_rules))

    def find(self, connection: ssl.SSLObject | ssl.SSLSocket | None) -> Holder | None:
        """Returns the holder of the client's certificate; None if it has sent none, or no rule names it."""
        encoded = None if connection is None else connection.getpeercert(binary_form=True)
        if connection is None or not encoded:
            return None
        names: Any = (connection.getpeercert() or {}).get("subjectAltName", ())
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
