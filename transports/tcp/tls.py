"""TLS of the tcp network: version 1.3, with certificates on both sides.

Contexts are made from the files when they are first needed, and again by `reload`.
"""

import contextlib
import hashlib
import os
import pathlib
from typing import TYPE_CHECKING

from kactl.model.errors import BadConfig
from kactl.runtime.logs import logger
from kactl.security.tls.certificate_file import expiry_in, load_authorities, load_pair

from .identity import PeerCertificate

if TYPE_CHECKING:
    import ssl

log = logger(__name__)

Path = str | os.PathLike[str]


class Tls:
    """Files of a certificate, its key, and the authority that signs the certificates of the cluster.

        kactl.TcpNetwork(listen="10.0.0.1:7373", tls=kactl.Tls(ca="ca.pem", cert="c.pem", key="c.key"))

    Args:
        ca: certificates of the authority, in PEM.
        cert: this program's certificate, with its chain, in PEM.
        key: its key, in PEM, without a passphrase.
        crl: the certificates that the authority has revoked, in PEM.

    Attributes:
        verifying: identifies the contents of `ca` and `crl` in use.
        expires_s: end of validity of the certificate in use, in seconds since 1970; None before it is loaded.
    """

    def __init__(self, *, ca: Path, cert: Path, key: Path, crl: Path | None = None) -> None:
        # They are read again later, and the working directory may have changed then.
        self.ca, self.cert, self.key = (str(pathlib.Path(file).absolute()) for file in (ca, cert, key))
        self.crl = None if crl is None else str(pathlib.Path(crl).absolute())
        self.verifying = b""
        self._contexts: tuple[ssl.SSLContext, ssl.SSLContext] | None = None
        self.expires_s: float | None = None

    def reload(self) -> None:
        """Read the files again, for new links. If that fails, the earlier ones stay in use.

        Raises:
            BadConfig: a file cannot be read, or the key does not belong to the certificate.
        """
        self._contexts = self._load()

    def server_context(self) -> "ssl.SSLContext":
        """Returns the context for accepted connections. Raises BadConfig as `reload` does."""
        return self._loaded()[0]

    def client_context(self) -> "ssl.SSLContext":
        """Returns the context for connections that this program opens. Raises BadConfig as `reload` does."""
        return self._loaded()[1]

    def own_certificate(self) -> PeerCertificate:
        """Returns this program's certificate as its peers see it.

        Raises:
            BadConfig: as `reload` does, or no peer accepts the certificate: the authority has not signed it, or it has
                expired.
        """
        import ssl

        server, client = self._loaded()
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        accepting, dialing = server.wrap_bio(there, back, server_side=True), client.wrap_bio(back, there)
        try:
            for side in (dialing, accepting, dialing, accepting):
                with contextlib.suppress(ssl.SSLWantReadError):
                    side.do_handshake()
        except ssl.SSLError as error:
            reason = f"programs that trust {self.ca} do not accept {self.cert}: {error}; issue another one"
            raise BadConfig("tls.cert", reason) from None
        certificate = accepting.getpeercert()
        assert certificate is not None, "the server's side has verified it"
        return PeerCertificate.of(certificate)

    def _loaded(self) -> "tuple[ssl.SSLContext, ssl.SSLContext]":
        if self._contexts is None:
            self._contexts = self._load()
        return self._contexts

    def _load(self) -> "tuple[ssl.SSLContext, ssl.SSLContext]":
        import ssl

        server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        server.num_tickets = 0  # the certificate of a resumed session is not verified again
        # The identity is a URI, which the handshake of the network compares; host names mean nothing here.
        client.check_hostname = False
        for context in (server, client):
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.verify_mode = ssl.CERT_REQUIRED
            self._load_files(context)
        self.expires_s = expiry_in(self.cert)
        contents = (pathlib.Path(file).read_bytes() for file in (self.ca, self.crl) if file is not None)
        self.verifying = b"".join(hashlib.sha256(content).digest() for content in contents)
        return server, client

    def _load_files(self, context: "ssl.SSLContext") -> None:
        import ssl

        load_authorities(context, self.ca, "tls.ca")
        if self.crl is not None:
            load_authorities(context, self.crl, "tls.crl", "list of revoked certificates")
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        load_pair(context, self.cert, self.key, "tls")
