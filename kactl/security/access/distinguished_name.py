"""Names in certificates, as Java writes them.

Brokers and their ACLs use the text of Java's `X500Principal.getName()` (RFC 2253): the last attribute of the
certificate comes first, and types that RFC 2253 does not name appear by their number, with the value in hexadecimal.

Source: sun.security.x509.X500Name and AVA of the JDK; RFC 2253, RFC 5280.
"""

from typing import Final

from .der import SEQUENCE, MalformedCertificate, elements, fields_of, of_type

_SET: Final = 0x31
_OBJECT_ID: Final = 0x06
# UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString. Java reads the bytes of all of them as
# UTF-8. A UniversalString is no text for it.
_TEXTS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_BLANK: Final = " \r"
# Fields of a certificate before its subject: serial number, algorithm, issuer, validity.
_BEFORE_SUBJECT: Final = 4


def subject_of(certificate: bytes) -> str:
    """Returns the subject of a certificate as Java's text.

    Args:
        certificate: in DER.

    Raises:
        MalformedCertificate: it cannot be read.
    """
    fields = fields_of(certificate)
    if len(fields) <= _BEFORE_SUBJECT:
        raise MalformedCertificate("the certificate has no subject")
    tag, subject, _ = fields[_BEFORE_SUBJECT]
    if tag != SEQUENCE:
        raise MalformedCertificate("the certificate's subject is not a sequence")
    names = [_relative(content) for content in of_type(subject, _SET)]
    return ",".join(reversed(names))


def _relative(content: bytes) -> str:
    return "+".join(_attribute(pair) for pair in of_type(content, SEQUENCE))


def _attribute(pair: bytes) -> str:
    parts = list(elements(pair))
    if len(parts) != 2 or parts[0][0] != _OBJECT_ID:
        raise MalformedCertificate("an attribute of the subject is not a type and a value")
    number = _object_id(parts[0][1])
    tag, value, encoded = parts[1]
    keyword = _KEYWORDS.get(number)
    if keyword is None or tag not in _TEXTS:
        return f"{keyword or number}=#{encoded.hex()}"
    return f"{keyword}={_escaped(value.decode(errors='replace'))}"


def _escaped(text: str) -> str:
    """Returns a value with backslashes before special characters, and before blanks at its ends."""
    escaped = "".join("\\00" if char == "\0" else f"\\{char}" if char in _ESCAPED else char for char in text)
    inner = escaped.strip(_BLANK)
    before = escaped[: len(escaped) - len(escaped.lstrip(_BLANK))]
    after = escaped[len(before) + len(inner) :]
    return "".join(f"\\{blank}" for blank in before) + inner + "".join(f"\\{blank}" for blank in after)


def _object_id(content: bytes) -> str:
    if not content or content[-1] & 0x80:
        raise MalformedCertificate("the type of an attribute is truncated")
    arcs, arc = [], 0
    for byte in content:
        arc = arc << 7 | byte & 0x7F
        if not byte & 0x80:
            arcs.append(arc)
            arc = 0
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, (first, arcs[0] - 40 * first, *arcs[1:])))
