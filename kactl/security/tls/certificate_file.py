"""PEM files: loading them for TLS, and the expiry of a certificate."""

import contextlib
import os
import ssl
from pathlib import Path

from kactl.model.errors import BadConfig
from kactl.runtime.private_files import check_private, check_trusted
from kactl.security.access.validity import expiry_of

_BEGIN = "-----BEGIN CERTIFICATE-----"
_END = "-----END CERTIFICATE-----"
_KEY_END = " PRIVATE KEY-----"
_MISMATCH = "KEY_VALUES_MISMATCH"


def load_pair(context: ssl.SSLContext, cert: str, key: str, section: str) -> None:
    """Present a certificate and its key in the handshakes of a context.

    Args:
        cert, key: PEM files; without a key it is in the file of the certificate.
        section: of the configuration, for errors.

    Raises:
        BadConfig: names the file, and what is wrong with it. Other users can change the certificate, or use the key.
    """
    check_trusted(cert, f"{section}.cert")
    _check_key(key or cert, f"{section}.key")

    def no_passphrase() -> str:
        # OpenSSL would ask for it on the terminal.
        raise BadConfig(f"{section}.key", f"{key or cert} has a passphrase: store the key without one, of mode 0600")

    try:
        context.load_cert_chain(cert, key or None, password=no_passphrase)
    except OSError as error:
        raise _unusable(error, cert, key or cert, section) from None


def _check_key(path: str, setting: str) -> None:
    with contextlib.suppress(OSError):  # loading it explains the error
        if os.path.isfile(path):
            with open(path, "rb") as file:
                check_private(file.fileno(), Path(path), setting)


def load_authorities(context: ssl.SSLContext, path: str, setting: str, content: str = "certificate") -> None:
    """Verify peers by the certificates of authorities in a PEM file, or by the list of what they have revoked.

    Args:
        setting: the key of the configuration that names the file, for errors.
        content: what the file should contain, for errors.

    Raises:
        BadConfig: the file cannot be read, contains something else, or other users can change it.
    """
    check_trusted(path, setting)
    try:
        context.load_verify_locations(path)
    except OSError as error:
        raise unusable_authorities(error, path, setting, content) from None


def unusable_authorities(error: OSError, path: str, setting: str, content: str = "certificate") -> BadConfig:
    """Returns the error for a file that `load_authorities` could not load."""
    if isinstance(error, ssl.SSLError):
        return BadConfig(setting, f"{path} contains no {content} in PEM: name another file")
    return BadConfig(setting, f"{_unreadable(path, error)}: name a file with a {content} in PEM")


def _unusable(error: OSError, cert: str, key: str, section: str) -> BadConfig:
    if isinstance(error, ssl.SSLError) and error.reason == _MISMATCH:
        return BadConfig(f"{section}.key", f"the private key in {key} does not belong to the certificate in {cert}")
    for setting, path, mark, content in (("cert", cert, _BEGIN, "certificate"), ("key", key, _KEY_END, "private key")):
        try:
            text = Path(path).read_text(encoding="ascii", errors="replace")
        except OSError as cause:
            return BadConfig(
                f"{section}.{setting}", f"{_unreadable(path, cause)}: name a file with the {content} in PEM"
            )
        if mark not in text:
            return BadConfig(f"{section}.{setting}", f"{path} contains no {content} in PEM: name another file")
    return BadConfig(f"{section}.cert", f"{cert} and {key} cannot be used as a certificate and its key: {error}")


def _unreadable(path: str, error: OSError) -> str:
    return f"{path} cannot be read ({error.strerror})"


def expiry_in(path: str | os.PathLike[str]) -> float | None:
    """Returns the end of validity of the first certificate of a file, in seconds since 1970; None if there is none, or
    it cannot be read. The first one is that of the program, before those of its authorities.
    """
    try:
        text = Path(path).read_text(encoding="ascii", errors="replace")
        begin = text.index(_BEGIN)
        end = text.index(_END, begin) + len(_END)
        return expiry_of(ssl.PEM_cert_to_DER_cert(text[begin:end]))
    except (OSError, ValueError):  # also MalformedCertificate, and text that is not base64
        return None
