"""TLS of a server, whose certificate is replaced when its files change.

Loading a wrong key into a context that is in use breaks it. So the files are loaded into a new context, which
connections use from then on. A context also knows the sessions that its clients may resume. A resumed session has the
client's certificate of its first handshake, which is not verified again: with the same context, a revoked certificate,
or one of an authority that was removed, would be accepted for hours.

Sessions of TLS 1.3, which each resumption prolongs, are not resumed at all. Their tickets would also take 6 % of the
processor time of a connection, and peers rarely open another one. Python cannot prevent the resumption of sessions of
TLS 1.2, which end after two hours; `encryption` verifies that their certificates have not expired.
"""

import contextlib
import hashlib
import ssl
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from kactl.model.errors import BadConfig
from kactl.runtime import reloading
from kactl.runtime.logs import logger
from kactl.runtime.threads import run_in_thread
from kactl.security.access.validity import has_expired

from .certificate_file import expiry_in, load_authorities, load_pair

log = logger(__name__)

POLL_S: Final = 10.0
HANDSHAKE_S: Final = 10.0

ClientAuth = Literal["none", "optional", "required"]
_Version = tuple[reloading.FileVersion, ...]


class ServerTls:
    """Certificate and key of a server.

    Args:
        section: of the configuration, for errors.
        cert, key: PEM files.
        client_auth: whether clients are asked for a certificate, and whether they need one.
        client_ca: file with the authority of the clients' certificates.
        crl: file with the certificates that it has revoked; empty for none.
        protocols: what the server speaks, for ALPN; empty for no ALPN.

    Attributes:
        context: for the next connection. Another one after the files have been loaded again.
        cert: file of the certificate.
        expires_s: end of validity of the certificate in use, in seconds since 1970; None if it cannot be read.
        reload_failed: the files have changed, and cannot be used; the previous ones stay.
        on_verification_changed: called after clients' certificates are verified by another authority, or another list
            of revoked certificates.

    Raises:
        BadConfig: the files cannot be used.
    """

    def __init__(
        self,
        section: str,
        *,
        cert: str,
        key: str,
        client_auth: ClientAuth = "none",
        client_ca: str = "",
        crl: str = "",
        protocols: tuple[str, ...] = ("http/1.1",),
    ) -> None:
        self._section = section
        self._client_auth = client_auth
        # They are read again later, and the working directory may have changed then.
        self.cert, self._key, self._client_ca, self._crl = (
            str(Path(file).absolute()) if file else "" for file in (cert, key, client_ca, crl)
        )
        self._protocols = protocols
        self.on_verification_changed: Callable[[], None] = lambda: None
        self._version = self._seen()
        self._verifying = self._read_verifying()
        self.context = self._load()
        # Those that verify clients as the current one does.
        self._equals = weakref.WeakSet((self.context,))
        self.expires_s = expiry_in(cert)
        self.reload_failed = False

    async def run(self) -> None:
        """Load the files again when they change, until cancelled."""
        while True:
            await reloading.pause(POLL_S)
            await self.refresh()

    async def refresh(self) -> None:
        """Load the files again if they have changed."""
        version = await run_in_thread(self._seen)
        if version == self._version:
            return
        self._version = version
        verifying = await run_in_thread(self._read_verifying)
        try:
            self.context = await run_in_thread(self._load)
        except BadConfig as error:
            self.reload_failed = True
            log.error("the certificate cannot be loaded again, so the previous one is used: %s", error)
            return
        self.reload_failed = False
        is_changed, self._verifying = verifying != self._verifying, verifying
        if is_changed:
            self._equals.clear()
        self._equals.add(self.context)
        if is_changed:
            self.on_verification_changed()
        self.expires_s = await run_in_thread(expiry_in, self.cert)
        log.info("the certificate %s has been loaded again", self.cert)

    def accepts(self, connection: ssl.SSLObject) -> bool:
        """Returns whether the client's certificate, which was verified when the connection began, still counts: it is
        valid, and would be verified by the same authority and the same list of revoked certificates. True for a client
        without a certificate, and False if the connection has failed.
        """
        return has_valid_certificate(connection) and (
            connection.context in self._equals or certificate_of(connection) is None
        )

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        if self._protocols:
            context.set_alpn_protocols(list(self._protocols))
        load_pair(context, self.cert, self._key, self._section)
        if self._client_auth != "none":
            self._verify_clients(context)
        return context

    def _verify_clients(self, context: ssl.SSLContext) -> None:
        context.verify_mode = ssl.CERT_REQUIRED if self._client_auth == "required" else ssl.CERT_OPTIONAL
        for key, path in (("client-ca", self._client_ca), ("crl", self._crl)):
            if not path:
                continue
            content = "list of revoked certificates" if key == "crl" else "certificate"
            load_authorities(context, path, f"{self._section}.{key}", content)
        if self._crl:
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF

    def _read_verifying(self) -> bytes:
        digest = hashlib.sha256()
        for path in (self._client_ca, self._crl):
            with contextlib.suppress(OSError):  # loading it explains the error
                digest.update(hashlib.sha256(Path(path).read_bytes() if path else b"").digest())
        return digest.digest()

    def _seen(self) -> _Version:
        return tuple(reloading.version_of(path) for path in (self.cert, self._key, self._client_ca, self._crl) if path)


def certificate_of(connection: ssl.SSLObject) -> bytes | None:
    """Returns the certificate of a client, which TLS has verified, in DER; None if it has sent none.

    Raises:
        ConnectionResetError: the connection has failed, after which OpenSSL does not tell. A client can let it fail at
            any moment, for example by an end without the announcement that TLS demands.
    """
    try:
        return connection.getpeercert(binary_form=True)
    except ValueError:
        raise ConnectionResetError("the connection has failed") from None


def has_valid_certificate(connection: ssl.SSLObject) -> bool:
    """Returns whether a client's certificate has not expired since its connection began. True for a client without a
    certificate, and False if the connection has failed.
    """
    try:
        certificate = certificate_of(connection)
    except ConnectionResetError:
        return False
    return certificate is None or not has_expired(certificate, time.time())
