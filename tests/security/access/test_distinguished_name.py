"""Subjects of certificates have the text of Java, and malformed ones are rejected.

`test_kafka_oracle` compares the texts with those of a JDK.
"""

from typing import Final

import pytest

from kactl.security.access import MalformedCertificate, subject_of

from .der import Attribute, certificate, element, encoded_name

UTF8, PRINTABLE, IA5, INTEGER, OCTETS = 0x0C, 0x13, 0x16, 0x02, 0x04
COMMON_NAME: Final = element(0x06, bytes([0x55, 4, 3]))


def named(text: str, *, tag: int = UTF8) -> list[list[Attribute]]:
    return [[Attribute("2.5.4.3", tag, text.encode())]]


def attribute(type_: str, value: bytes = b"x", tag: int = UTF8) -> Attribute:
    return Attribute(type_, tag, value)


SUBJECTS: Final[list[tuple[list[list[Attribute]], str]]] = [
    ([], ""),
    (
        [[attribute("2.5.4.6", b"DE", PRINTABLE)], [attribute("2.5.4.10", b"Example")], [attribute("2.5.4.3", b"a")]],
        "CN=a,O=Example,C=DE",
    ),
    ([[attribute("2.5.4.3", b"a"), attribute("0.9.2342.19200300.100.1.1", b"7")]], "CN=a+UID=7"),
    (
        [
            [attribute(type_)]
            for type_ in (
                "0.9.2342.19200300.100.1.25",
                "0.9.2342.19200300.100.1.1",
                "2.5.4.11",
                "2.5.4.10",
                "2.5.4.9",
                "2.5.4.8",
                "2.5.4.7",
                "2.5.4.6",
                "2.5.4.3",
            )
        ],
        "CN=x,C=x,L=x,ST=x,STREET=x,O=x,OU=x,UID=x,DC=x",
    ),
    *[(named("ä", tag=tag), "CN=ä") for tag in (0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E)],
    # Other types of values, and types of attributes that RFC 2253 does not name.
    ([[attribute("2.5.4.3", b"\x05", INTEGER)]], "CN=#020105"),
    ([[attribute("2.5.4.3", b"a", OCTETS)]], "CN=#040161"),
    (named("ä", tag=0x1C), "CN=#1c02c3a4"),
    ([[attribute("1.2.840.113549.1.9.1", b"a@b", IA5)]], "1.2.840.113549.1.9.1=#1603614062"),
    ([[attribute("2.5.4.5", b"1", PRINTABLE)]], "2.5.4.5=#130131"),
    ([[attribute("0.39.127")]], "0.39.127=#0c0178"),
    ([[attribute("1.0.128")]], "1.0.128=#0c0178"),
    ([[attribute("1.39")]], "1.39=#0c0178"),
    ([[attribute("2.0")]], "2.0=#0c0178"),
    ([[attribute("2.999.16384")]], "2.999.16384=#0c0178"),
    # Special characters, and blanks at the ends.
    (named('a,b=c+d<e>f#g;h"i\\j'), 'CN=a\\,b\\=c\\+d\\<e\\>f\\#g\\;h\\"i\\\\j'),
    (named("a\0b"), "CN=a\\00b"),
    (named("  a  b "), "CN=\\ \\ a  b\\ "),
    (named(" \ra\r"), "CN=\\ \\\ra\\\r"),
    (named(" "), "CN=\\ "),
    (named("\ta\n"), "CN=\ta\n"),
    (named(""), "CN="),
    ([[attribute("2.5.4.3", b"a\xffb")]], "CN=a\ufffdb"),
]


@pytest.mark.parametrize(("name", "text"), SUBJECTS)
def test_subject_has_the_text_of_java(name: list[list[Attribute]], text: str) -> None:
    assert subject_of(certificate(encoded_name(name))) == text


def relative(*parts: bytes) -> bytes:
    """Returns a name of one attribute, which has some elements."""
    return element(0x30, element(0x31, element(0x30, b"".join(parts))))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (element(0x31, b""), "the certificate's subject is not a sequence"),
        (element(0x30, element(0x30, b"")), "an element has type 0x30 in place of 0x31"),
        (element(0x30, element(0x31, element(0x31, b""))), "an element has type 0x31 in place of 0x30"),
        (relative(), "an attribute of the subject is not a type and a value"),
        (relative(COMMON_NAME), "an attribute of the subject is not a type and a value"),
        (relative(COMMON_NAME, COMMON_NAME, COMMON_NAME), "an attribute of the subject is not a type and a value"),
        (relative(element(0x0C, b"\x55"), COMMON_NAME), "an attribute of the subject is not a type and a value"),
        (relative(element(0x06, b""), COMMON_NAME), "the type of an attribute is truncated"),
        (relative(element(0x06, b"\x55\x84"), COMMON_NAME), "the type of an attribute is truncated"),
    ],
)
def test_malformed_subject_is_rejected(name: bytes, reason: str) -> None:
    with pytest.raises(MalformedCertificate) as raised:
        subject_of(certificate(name))
    assert str(raised.value) == reason


def test_certificate_without_a_subject_is_rejected() -> None:
    with pytest.raises(MalformedCertificate, match="has no subject"):
        subject_of(element(0x30, element(0x30, element(0x30, b"") * 4)))


# -- the encoding ------------------------------------------------------------------------------------------------------

NONE: Final = "the certificate is truncated, or is none"


@pytest.mark.parametrize(
    ("malformed", "reason"),
    [
        (b"", NONE),
        (b"\x30", NONE),
        (element(0x31, element(0x30, b"")), NONE),
        (element(0x30, element(0x31, b"")), NONE),
        (b"\x30\x80\x00\x00", "an element has no definite length"),
        (b"\x30\x85\x00\x00\x00\x00\x01\x00", "an element has no definite length"),
        (b"\x30\x03\x30\x00", "an element is longer than the certificate"),
        (b"\x30\x84\x00\x00\x00\x03\x30\x00", "an element is longer than the certificate"),
        (certificate(encoded_name([]))[:-1], "an element is longer than the certificate"),
    ],
)
def test_bytes_that_are_no_certificate_are_rejected(malformed: bytes, reason: str) -> None:
    with pytest.raises(MalformedCertificate) as raised:
        subject_of(malformed)
    assert str(raised.value) == reason


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_length_may_have_up_to_four_bytes(size: int) -> None:
    fields = element(0x30, element(0x02, b"\1") * 4 + encoded_name(named("a")))
    assert subject_of(bytes([0x30, 0x80 | size]) + len(fields).to_bytes(size) + fields) == "CN=a"


@pytest.mark.parametrize("count", [127, 128, 255, 256, 70_000])
def test_long_value_is_read(count: int) -> None:
    assert subject_of(certificate(encoded_name(named("a" * count)))) == f"CN={'a' * count}"
