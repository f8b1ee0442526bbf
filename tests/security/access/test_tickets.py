"""Tickets of web pages: their signature and their end."""

import secrets
import string

import msgspec
import pytest

from kactl.security.access import tickets
from kactl.security.access.role import Role
from kactl.security.access.tickets import (
    LIFETIME_MS,
    generation_of,
    read_ticket,
    signed,
    ticket_of_token,
    ticket_of_user,
)
from kactl.security.access.tokens import TokenRecord, new_token, without_secrets

KEY = bytes(range(32))
NOW_MS = 1_000_000


def record(expires_ms: int | None = None) -> TokenRecord:
    return new_token("ada", Role.OPERATOR, random=secrets.token_bytes(37), now_ms=0, expires_ms=expires_ms).record


def test_ticket_is_read_as_it_was_signed() -> None:
    ticket = ticket_of_token(record(), now_ms=NOW_MS)

    assert read_ticket(signed(ticket, KEY), KEY, now_ms=NOW_MS) == ticket
    assert ticket_of_user("uid=7", Role.ADMIN, now_ms=NOW_MS).token == ""


def test_ticket_ends_after_its_time_and_with_its_token() -> None:
    text = signed(ticket_of_token(record(), now_ms=NOW_MS), KEY)

    assert read_ticket(text, KEY, now_ms=NOW_MS + LIFETIME_MS - 1) is not None
    assert read_ticket(text, KEY, now_ms=NOW_MS + LIFETIME_MS) is None
    assert ticket_of_token(record(NOW_MS + 5), now_ms=NOW_MS).expires_ms == NOW_MS + 5


def test_ticket_of_the_longest_length_is_read() -> None:
    overhead = len(signed(ticket_of_user("", Role.ADMIN, now_ms=NOW_MS), KEY))
    texts = [
        signed(ticket_of_user(length * "u", Role.ADMIN, now_ms=NOW_MS), KEY)
        for length in range(1, tickets.LENGTH_MAX - overhead)
    ]
    longest = next(text for text in texts if len(text) == tickets.LENGTH_MAX)

    assert read_ticket(longest, KEY, now_ms=NOW_MS) is not None
    assert read_ticket(next(text for text in texts if len(text) > tickets.LENGTH_MAX), KEY, now_ms=NOW_MS) is None


def test_ticket_of_another_key_is_refused() -> None:
    text = signed(ticket_of_token(record(), now_ms=NOW_MS), KEY)

    assert read_ticket(text, bytes(32), now_ms=NOW_MS) is None


def test_no_changed_character_is_accepted() -> None:
    """A forged ticket. The last character of a part has bits that no byte uses; they have to be zero."""
    ticket = ticket_of_token(record(), now_ms=NOW_MS)
    text = signed(ticket, KEY)

    for place in range(len(tickets.PREFIX), len(text)):
        others = string.ascii_letters + "0123456789-_." if place in (text.index(".") - 1, len(text) - 1) else "Az9-."
        for other in others:
            changed = text[:place] + other + text[place + 1 :]
            assert read_ticket(changed, KEY, now_ms=NOW_MS) == (ticket if changed == text else None), changed


@pytest.mark.parametrize(
    "text", ["", "kactlticket_", "kactlticket_.", "kactl_aaaaaaaa_" + 43 * "a", "x" * 5000, "kactlticket_\x00"]
)
def test_other_texts_are_no_tickets(text: str) -> None:
    assert read_ticket(text, KEY, now_ms=NOW_MS) is None


@pytest.mark.parametrize("content", [[], ["ada"], {"name": "ada"}, ["ada", "root", 3, "", b"", 2**40], 7])
def test_content_of_another_version_is_refused(content: object) -> None:
    encoded = msgspec.msgpack.encode(content)
    text = f"{tickets.PREFIX}{tickets._text(encoded)}.{tickets._text(tickets._mac(encoded, KEY))}"

    assert read_ticket(text, KEY, now_ms=NOW_MS) is None


def test_each_change_of_a_token_ends_its_tickets() -> None:
    first = record()
    changes = {"sha256": bytes(32), "role": Role.ADMIN, "expires_ms": 7}

    generations = [generation_of(msgspec.structs.replace(first, **{name: value})) for name, value in changes.items()]

    assert len({generation_of(first), *generations}) == 4
    assert generation_of(msgspec.structs.replace(first, name="grace")) == generation_of(first)


def test_tickets_and_codes_do_not_appear_in_texts() -> None:
    text = signed(ticket_of_token(record(), now_ms=NOW_MS), KEY)
    code = f"kactlcode_{secrets.token_urlsafe(32)}"

    assert without_secrets(f"/a/{text}/{code}?b") == "/a/kactlticket_***/kactlcode_***?b"
