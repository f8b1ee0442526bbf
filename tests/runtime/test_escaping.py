"""External text stays on one line and contains no terminal control sequences."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.runtime.escaping import TEXT_LENGTH_MAX, escaped, harmless, harmless_json, harmless_lines

# C0, DEL and C1, line and paragraph separators, and the marks that change the reading direction.
CONTROLS = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), "\u2028", "\u2029"]
DIRECTIONS = ["\u061c", "\u200e", "\u200f", *map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))]


@pytest.mark.parametrize("character", [*CONTROLS, *DIRECTIONS, "\udc80"], ids=lambda each: f"{ord(each):04x}")
def test_unprintable_character_is_escaped(character: str) -> None:
    assert escaped(f"a{character}b") == f"a\\u{ord(character):04x}b"
    assert harmless(f"a{character}b") == "a\N{REPLACEMENT CHARACTER}b"


def test_unprintable_character_beyond_the_first_plane_is_escaped() -> None:
    assert escaped("a\U000e0001b") == "a\\U000e0001b"


@pytest.mark.parametrize("text", ["", "orders-7", "Gruß, 東京 \N{GRINNING FACE}", r"C:\temp\new"])
def test_printable_text_is_unchanged(text: str) -> None:
    assert escaped(text) == text
    assert harmless(text) == text


def test_long_text_is_truncated_with_the_missing_length() -> None:
    text = "x" * (TEXT_LENGTH_MAX + 7)

    assert escaped(text) == "x" * TEXT_LENGTH_MAX + "... (7 more characters)"
    assert escaped("\n\n\n", 2) == "\\u000a\\u000a... (1 more characters)"


@given(st.text())
def test_result_is_printable_and_bounded(text: str) -> None:
    shown = escaped(text, 10)

    assert shown.isprintable()
    assert len(shown) <= 10 * len("\\U00000000") + len("... (1000 more characters)")
    assert harmless(text).isprintable()


@given(st.text())
def test_lines_stay_and_are_printable(text: str) -> None:
    shown = harmless_lines(text)

    kept = [re.split(r"([\n\t])", each)[1::2] for each in (text, shown)]
    assert kept[0] == kept[1]
    assert re.sub(r"[\n\t]", "", shown).isprintable()
    assert len(shown) == len(text)


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"]))
    )
)
def test_json_is_printable_and_has_the_same_values(value: dict[str, str]) -> None:
    document = harmless_json(msgspec.json.format(msgspec.json.encode(value)))

    assert msgspec.json.decode(document) == value
    assert all(line.isprintable() for line in document.decode().split("\n"))
