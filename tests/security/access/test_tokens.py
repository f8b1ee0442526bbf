"""Tokens: their form, whom they are accepted from, and until when."""

import hashlib
import ipaddress
from typing import Final

import msgspec
import pytest

from kactl.security.access.role import Role
from kactl.security.access.tokens import TokenRecord, Tokens, new_token, record_of, without_secrets

RANDOM: Final = bytes(range(37))
SECRET: Final = "BQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4fICEiIyQ"
TEXT: Final = f"kactl_aaaqeaye_{SECRET}"
NOW_MS: Final = 1_000_000


def record(*networks: str, expires_ms: int | None = None) -> TokenRecord:
    return new_token(
        "ada",
        Role.OPERATOR,
        random=RANDOM,
        now_ms=7,
        expires_ms=expires_ms,
        networks=map(ipaddress.ip_network, networks),
    ).record


def test_new_token_has_its_id_and_its_secret() -> None:
    network = ipaddress.ip_network("10.0.0.0/8")
    made = new_token("ada", Role.OPERATOR, random=RANDOM + b"more", now_ms=7, expires_ms=9, networks=[network])

    assert made.text == TEXT
    assert made.record == TokenRecord(
        id="aaaqeaye",
        name="ada",
        role=Role.OPERATOR,
        sha256=hashlib.sha256(SECRET.encode()).digest(),
        created_ms=7,
        expires_ms=9,
        networks=(network,),
    )


def test_record_of_a_text_is_that_of_its_token() -> None:
    assert record_of(TEXT, "ada", Role.OPERATOR) == msgspec.structs.replace(record(), created_ms=0)


@pytest.mark.parametrize("text", ["", "kactl_", TEXT[:-1], f"{TEXT}x", f" {TEXT}", TEXT.upper(), f"{TEXT}\n"])
def test_other_texts_are_no_tokens(text: str) -> None:
    assert record_of(text, "ada", Role.OPERATOR) is None
    assert Tokens([record()]).find(text, now_ms=NOW_MS, address=None) is None


def test_text_that_cannot_be_encoded_is_no_token() -> None:
    """Bytes of a header that are no UTF-8."""
    assert Tokens([record()]).find("kactl_\udcff", now_ms=NOW_MS, address=None) is None


def test_set_has_one_record_for_each_id() -> None:
    other = new_token("eve", Role.VIEWER, random=bytes(37), now_ms=7, expires_ms=None).record
    renamed = msgspec.structs.replace(record(), name="grace")

    assert Tokens([record(), other, renamed]).records == (renamed, other)
    assert len(Tokens([record(), other, renamed])) == 2
    assert Tokens().records == ()


def test_token_is_accepted_before_its_end_only() -> None:
    ends = record(expires_ms=NOW_MS)
    known = Tokens([ends])

    for now_ms, expected in ((NOW_MS - 1, ends), (NOW_MS, None), (NOW_MS + 1, None)):
        assert known.find(TEXT, now_ms=now_ms, address=None) == expected
        assert known.get(ends.id, now_ms=now_ms, address=None) == expected
        assert known.holds(ends, now_ms=now_ms) == (expected is not None)
    assert Tokens([record()]).get("aaaqeaye", now_ms=2**60, address=None) == record()


def test_record_of_an_unknown_id_is_none() -> None:
    assert Tokens([record()]).get("aaaaaaaa", now_ms=NOW_MS, address=None) is None


def test_changed_or_removed_record_holds_no_more() -> None:
    before = record()

    assert Tokens([before]).holds(record(), now_ms=NOW_MS)
    assert not Tokens([msgspec.structs.replace(before, role=Role.ADMIN)]).holds(before, now_ms=NOW_MS)
    assert not Tokens().holds(before, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("networks", "address", "is_accepted"),
    [
        ([], "192.0.2.1", True),
        ([], None, True),
        (["10.0.0.0/8"], None, False),
        (["10.0.0.0/8"], "10.255.255.255", True),
        (["10.0.0.0/8"], "11.0.0.0", False),
        (["10.0.0.0/8"], "::ffff:10.0.0.1", True),
        (["10.0.0.0/8"], "::ffff:11.0.0.1", False),
        (["10.0.0.0/8"], "::a00:1", False),
        (["fd00::/64", "10.0.0.0/8"], "10.0.0.1", True),
        (["fd00::/64", "10.0.0.0/8"], "fd00::1", True),
        (["fd00::/64"], "fd00:0:0:1::1", False),
        (["fe80::/10"], "fe80::1%eth0", True),
        (["fe80::/10"], "fd00::1%eth0", False),
    ],
)
def test_token_is_accepted_from_its_networks_only(networks: list[str], address: str | None, is_accepted: bool) -> None:
    known = record(*networks)
    expected = known if is_accepted else None

    assert Tokens([known]).find(TEXT, now_ms=NOW_MS, address=address) == expected
    assert Tokens([known]).get(known.id, now_ms=NOW_MS, address=address) == expected


def test_secrets_do_not_appear_in_texts() -> None:
    ticket, code = f"kactlticket_ab-_.{SECRET}", f"kactlcode_{SECRET}"

    assert without_secrets(f"{TEXT},{ticket};{TEXT}") == "kactl_aaaqeaye_***,kactlticket_***;kactl_aaaqeaye_***"
    assert without_secrets(f"a={code}&b={TEXT[:-1]}") == f"a=kactlcode_***&b={TEXT[:-1]}"
