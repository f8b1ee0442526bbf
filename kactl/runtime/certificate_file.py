"""Expiry of the certificate in a PEM file."""

import os
import ssl
from pathlib import Path

from kactl.access.validity import expiry_of

_BEGIN = "-----BEGIN CERTIFICATE-----"
_END = "-----END CERTIFICATE-----"


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
