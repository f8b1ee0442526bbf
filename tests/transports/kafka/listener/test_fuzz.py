"""Fuzzer of the listener's decoders: a short run, and seeded bugs that it must find."""

import random
from typing import Any

import pytest

from kactl.errors import MalformedMessage
from kactl.transports.kafka.listener import field_types

from .fuzz import Violation, fuzz

pytestmark = pytest.mark.anyio


async def test_no_input_violates_an_oracle() -> None:
    seed = random.SystemRandom().randrange(2**32)
    counts = await fuzz(3000, seed)

    assert counts["refused"] > 100, seed
    assert counts["decoded"] > 100, seed


async def test_missing_length_check_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def take(self: field_types.Reader, size: int) -> int:
        begin, self.offset = self.offset, self.offset + size
        return begin

    monkeypatch.setattr(field_types.Reader, "take", take)

    with pytest.raises(Exception) as error:  # noqa: PT011 - whichever the missing check leads to
        await fuzz(3000, 1)

    assert not isinstance(error.value, MalformedMessage)


async def test_missing_charge_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def take(self: Any, count: int) -> None:
        pass

    monkeypatch.setattr(field_types.Elements, "take", take)

    with pytest.raises(Violation, match="charged"):
        await fuzz(3000, 1)
