"""The work for a token that is refused: the same, whether its id is unknown or its secret wrong.

Work is counted and not timed: a time depends on what else runs on the machine. `bench.security` measures it.
"""

import hmac
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from kactl.security.access import tokens
from kactl.security.access.role import Role
from kactl.security.access.tokens import NewToken, Tokens, new_token

NOW_MS = 1_000_000


def token(number: int, **more: Any) -> NewToken:
    random = number.to_bytes(5) + bytes([number]) * 32
    return new_token(f"t{number}", Role.VIEWER, random=random, now_ms=0, **{"expires_ms": None, **more})


KNOWN = [token(number) for number in range(1, 100)]
TOKENS = Tokens([each.record for each in KNOWN])
RIGHT = KNOWN[50].text
WRONG = RIGHT[:-5] + "AAAAA"
UNKNOWN = token(200).text


def find(text: str, known: Tokens = TOKENS) -> object:
    return known.find(text, now_ms=NOW_MS, address="10.0.0.1")


def work_of(function: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """Returns the hashes and comparisons that a function makes, with the sizes of what they read."""
    made: list[tuple[object, ...]] = []
    hash_of, compare = tokens.hash_of, hmac.compare_digest

    def hashed(secret: str) -> bytes:
        made.append(("hash", len(secret)))
        return hash_of(secret)

    def compared(left: Any, right: Any) -> bool:
        made.append(("comparison", len(left), len(right)))
        return compare(left, right)

    with monkeypatch.context() as patch:
        patch.setattr(tokens, "hash_of", hashed)
        patch.setattr(hmac, "compare_digest", compared)
        function()
    return made


def lines_of(function: Callable[[], object]) -> list[tuple[str, int]]:
    """Returns the lines of the module that a function runs, in order."""
    lines: list[tuple[str, int]] = []

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename != tokens.__file__:
            return None
        if event == "line":
            lines.append((frame.f_code.co_name, frame.f_lineno))
        return trace

    earlier = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(earlier)
    return lines


def test_right_and_wrong_tokens_are_told_apart() -> None:
    assert find(RIGHT) == KNOWN[50].record
    assert (find(WRONG), find(UNKNOWN), find("x")) == (None, None, None)


@pytest.mark.parametrize("text", [UNKNOWN, WRONG, RIGHT])
def test_every_token_costs_one_hash_and_one_comparison(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert work_of(lambda: find(text), monkeypatch) == [("hash", 43), ("comparison", 32, 32)]


def test_text_that_is_no_token_costs_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [made[0] for made in work_of(lambda: find("x" * 100), monkeypatch)] == ["hash", "comparison"]


def test_unknown_id_and_wrong_secret_run_the_same_lines() -> None:
    lines = lines_of(lambda: find(WRONG))

    assert lines_of(lambda: find(UNKNOWN)) == lines
    assert len(lines) > 5
    assert lines_of(lambda: find(RIGHT)) != lines


def test_expired_token_costs_what_others_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    expired = token(7, expires_ms=NOW_MS - 1)
    known = Tokens([expired.record])

    assert find(expired.text, known) is None
    assert work_of(lambda: find(expired.text, known), monkeypatch) == work_of(lambda: find(UNKNOWN), monkeypatch)


def test_secret_of_a_token_is_worth_nothing_under_another_id() -> None:
    """It is the one that the secret of an unknown id is compared with."""
    secret = RIGHT[15:]
    alone = Tokens([KNOWN[50].record])

    assert find(RIGHT, alone) is not None
    assert find(f"{UNKNOWN[:15]}{secret}", alone) is None


def test_no_token_is_valid_without_any() -> None:
    assert find(UNKNOWN, Tokens()) is None
