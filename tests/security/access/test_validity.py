"""Ends of certificates' validity."""

import pytest

from kactl.security.access import MalformedCertificate, expiry_of

from .der import BEGIN, END, certificate, element, encoded_name

UTC_TIME, GENERALIZED_TIME = 0x17, 0x18


def ending(end: bytes) -> bytes:
    return certificate(encoded_name([]), element(0x30, BEGIN + end))


@pytest.mark.parametrize(
    ("tag", "end", "expires_s"),
    [
        (UTC_TIME, b"700101000001Z", 1),
        (UTC_TIME, b"491231235959Z", 2_524_607_999),
        (UTC_TIME, b"500101000000Z", -631_152_000),
        (GENERALIZED_TIME, b"20500101000000Z", 2_524_608_000),
        (GENERALIZED_TIME, b"99991231235959Z", 253_402_300_799),
        (GENERALIZED_TIME, b"20240229120102Z", 1_709_208_062),
    ],
)
def test_end_of_validity_has_two_forms(tag: int, end: bytes, expires_s: int) -> None:
    assert expiry_of(ending(element(tag, end))) == expires_s


@pytest.mark.parametrize(
    "end",
    [
        element(UTC_TIME, b"491331235959Z"),
        element(UTC_TIME, b"20491231235959Z"),
        element(UTC_TIME, b"\xff\xff1231235959Z"),
        element(UTC_TIME, b"49123123595"),
        element(UTC_TIME, b"4912312359Z"),
        element(UTC_TIME, b"4912 1235959Z"),
        element(UTC_TIME, b""),
        element(GENERALIZED_TIME, b"491231235959Z"),
        element(GENERALIZED_TIME, b"20230229120000Z"),
        element(GENERALIZED_TIME, b"20500101000000+0100"),
    ],
)
def test_text_that_is_no_time_is_rejected(end: bytes) -> None:
    with pytest.raises(MalformedCertificate, match="is no time"):
        expiry_of(ending(end))


@pytest.mark.parametrize("times", [b"", BEGIN, BEGIN + element(0x04, b"491231235959Z"), BEGIN + END + END])
def test_validity_has_two_times(times: bytes) -> None:
    with pytest.raises(MalformedCertificate, match="is not two times"):
        expiry_of(certificate(encoded_name([]), element(0x30, times)))


@pytest.mark.parametrize(
    "malformed",
    [
        certificate(encoded_name([]), element(0x31, BEGIN + END)),
        element(0x30, element(0x30, element(0x02, b"\1"))),
        # The fields before the validity are three, of any type.
        element(0x30, element(0x30, element(0x30, BEGIN + END) * 3)),
    ],
)
def test_certificate_without_a_validity_is_rejected(malformed: bytes) -> None:
    with pytest.raises(MalformedCertificate, match="has no validity"):
        expiry_of(malformed)
