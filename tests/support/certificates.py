"""Certificates for tests, made by the openssl program: an authority, and keys that it has signed for loopback."""

import ssl
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

_RUN_S: Final = 60.0
_DAYS: Final = "2"


class Signed(NamedTuple):
    """A certificate and its private key, as PEM files."""

    cert: Path
    key: Path


class Authority:
    """An authority in a folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self.cert = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        subject = ["-subj", f"/CN={name}"]
        # Python verifies strictly from 3.13 on: an authority has to say that it signs certificates.
        usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        _openssl("req", "-x509", *_NEW_KEY, *subject, *usage, "-days", _DAYS, "-keyout", self._key, "-out", self.cert)

    def sign(
        self, name: str, *, names: str = "IP:127.0.0.1,DNS:localhost", days: str = _DAYS, subject: str | None = None
    ) -> Signed:
        """Returns a new certificate. `names` are its alternative names, and `subject` is its subject, in openssl's
        notation; a negative number of days makes one that has expired."""
        signed = Signed(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        request = self._folder / f"{name}.csr"
        extensions = self._folder / f"{name}.ext"
        extensions.write_text(
            f"subjectAltName={names}\nextendedKeyUsage=serverAuth,clientAuth\n"
            "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
        )
        _openssl("req", *_NEW_KEY, "-subj", subject or f"/CN={name}", "-keyout", signed.key, "-out", request)
        authority = ["-CA", str(self.cert), "-CAkey", str(self._key), "-CAcreateserial", "-days", days]
        _openssl("x509", "-req", *authority, "-in", request, "-extfile", extensions, "-out", signed.cert)
        return signed

    def server_context(self, name: str = "kactl") -> ssl.SSLContext:
        """Returns the context of a server with a certificate for a name."""
        signed = self.sign(name)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(signed.cert, signed.key)
        return context

    def revoke(self, signed: Signed) -> Path:
        """Returns the list of revoked certificates, after one is added to it."""
        index, config, revoked = (self.cert.with_suffix(f".{suffix}") for suffix in ("index", "cnf", "crl"))
        index.touch()
        config.write_text(
            f"[ca]\ndefault_ca = own\n[own]\ndatabase = {index}\ndefault_md = sha256\ndefault_crl_days = {_DAYS}\n"
        )
        command: list[str | Path] = ["ca", "-config", config, "-cert", self.cert, "-keyfile", self._key]
        _openssl(*command, "-revoke", signed.cert)
        _openssl(*command, "-gencrl", "-out", revoked)
        return revoked


_NEW_KEY: Final[tuple[str, ...]] = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=_RUN_S)
