"""Certificates for tests, made by the openssl program: an authority, and keys that it has signed for loopback."""

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
        _openssl("req", "-x509", *_NEW_KEY, *subject, "-days", _DAYS, "-keyout", self._key, "-out", self.cert)

    def sign(self, name: str, *, names: str = "IP:127.0.0.1,DNS:localhost") -> Signed:
        """Returns a new certificate. `names` are its alternative names, in openssl's notation."""
        signed = Signed(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        request = self._folder / f"{name}.csr"
        extensions = self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={names}\nextendedKeyUsage=serverAuth,clientAuth\n")
        _openssl("req", *_NEW_KEY, "-subj", f"/CN={name}", "-keyout", signed.key, "-out", request)
        authority = ["-CA", str(self.cert), "-CAkey", str(self._key), "-CAcreateserial", "-days", _DAYS]
        _openssl("x509", "-req", *authority, "-in", request, "-extfile", extensions, "-out", signed.cert)
        return signed


_NEW_KEY: Final[tuple[str, ...]] = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=_RUN_S)
