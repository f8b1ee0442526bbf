"""Validity of certificates.

Source: RFC 5280, 4.1.2.5.
"""

import datetime
import functools
import re
from typing import Final

from .der import SEQUENCE, MalformedCertificate, elements, fields_of

# Fields of a certificate before its validity: serial number, algorithm, issuer.
_BEFORE_VALIDITY: Final = 3
# The types of a time. UTCTime has two digits for a year of 1950 to 2049, GeneralizedTime four.
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_CENTURY_BEGIN: Final = "50"
_FORMAT: Final = "%Y%m%d%H%M%SZ"
# strptime also accepts fewer digits, and then means another time.
_TIME: Final = re.compile(r"[0-9]{14}Z")


def has_expired(certificate: bytes, now_s: float) -> bool:
    """Returns whether a certificate's validity has ended, also if its end cannot be read.

    Args:
        certificate: in DER.
        now_s: in seconds since 1970.
    """
    try:
        return _known_expiry(certificate) <= now_s
    except MalformedCertificate:
        return True


@functools.lru_cache(maxsize=1024)
def _known_expiry(certificate: bytes) -> float:
    """Returns the end of a certificate's validity, which each request over a connection is compared with."""
    return expiry_of(certificate)


def expiry_of(certificate: bytes) -> float:
    """Returns the end of a certificate's validity, in seconds since 1970.

    Args:
        certificate: in DER.

    Raises:
        MalformedCertificate: it cannot be read.
    """
    fields = fields_of(certificate)
    if len(fields) <= _BEFORE_VALIDITY or fields[_BEFORE_VALIDITY][0] != SEQUENCE:
        raise MalformedCertificate("the certificate has no validity")
    times = list(elements(fields[_BEFORE_VALIDITY][1]))
    if len(times) != 2 or times[1][0] not in (_UTC_TIME, _GENERALIZED_TIME):
        raise MalformedCertificate("the certificate's validity is not two times")
    tag, value, _ = times[1]
    text = value.decode("ascii", errors="replace")
    if tag == _UTC_TIME:
        text = f"{'19' if text >= _CENTURY_BEGIN else '20'}{text}"
    try:
        ends = datetime.datetime.strptime(text if _TIME.fullmatch(text) else "", _FORMAT)
    except ValueError:
        raise MalformedCertificate(f"the end of the certificate's validity is no time: {text!r}") from None
    return ends.replace(tzinfo=datetime.UTC).timestamp()
