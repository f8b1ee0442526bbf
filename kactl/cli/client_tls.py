"""TLS of outgoing connections, by the files that a configuration names."""

import ssl
from typing import Any, Final

from kactl.model.errors import BadConfig
from kactl.runtime.logs import logger
from kactl.runtime.reloading import version_of
from kactl.security.tls.certificate_file import load_authorities, load_pair

log: Final = logger(__name__)


def client_tls(section: str, *, ca: str, cert: str, key: str) -> ssl.SSLContext | None:
    """Returns settings that verify servers' certificates and names; None if no file is named.

    Connections that begin after a file has changed use the changed one: certificates may be valid for a day only.
    Authorities that were removed from `ca` are accepted until the process ends.

    Args:
        section: of the configuration, for errors.
        ca: PEM file with the certificates of authorities; empty for those of the system.
        cert, key: PEM files of the client's own certificate; empty for none.

    Raises:
        BadConfig: a file cannot be read, or is something else.
    """
    return ClientContext.of(section, ca, cert, key) if ca or cert else None


class ClientContext(ssl.SSLContext):
    """Settings that follow their files."""

    _section: str
    _files: tuple[str, str, str]
    _seen: object

    @classmethod
    def of(cls, section: str, ca: str, cert: str, key: str) -> "ClientContext":
        """Returns the settings by some files. Raises BadConfig if one cannot be used."""
        context = cls(ssl.PROTOCOL_TLS_CLIENT)
        context._section, context._files = section, (ca, cert, key)
        context._seen = [version_of(path) for path in context._files]
        if not ca:
            context.load_default_certs()
        context._load()
        context.verify_flags = ssl.create_default_context(cafile=ca or None).verify_flags
        return context

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """Begin a connection of an event loop."""
        self._follow()
        return super().wrap_bio(*args, **kwargs)

    def wrap_socket(self, *args: Any, **kwargs: Any) -> ssl.SSLSocket:
        """Begin a connection of a command."""
        self._follow()
        return super().wrap_socket(*args, **kwargs)

    def _follow(self) -> None:
        found = [version_of(path) for path in self._files]
        if found == self._seen:
            return
        self._seen = found
        try:
            # A pair that does not fit would leave a context with half of it.
            ClientContext.of(self._section, *self._files)
            self._load()
        except BadConfig as error:
            log.error("the files of [%s] have changed, and the earlier ones stay in use: %s", self._section, error)
        else:
            log.info("new connections use the changed files of [%s]", self._section)

    def _load(self) -> None:
        ca, cert, key = self._files
        if ca:
            load_authorities(self, ca, f"{self._section}.ca")
        if cert:
            load_pair(self, cert, key, self._section)
