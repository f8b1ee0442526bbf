"""Oracles for the requests of the listener find bugs that are planted in the decoders."""

from typing import Any

import pytest

from kactl.model.errors import MalformedMessage
from kactl.transports.kafka.listener import field_types, schema
from kactl.transports.kafka.listener.api_keys import METADATA
from tests.fuzz import campaign
from tests.fuzz.target import Violation

from . import fuzz

INPUTS = 5_000


def _fuzz(*names: str) -> None:
    known = campaign.set_up()
    campaign.fuzz([known[name] for name in names] or fuzz.targets(), INPUTS, seed=1)


def test_no_input_violates_an_oracle() -> None:
    campaign.set_up()
    figures = campaign.fuzz(fuzz.targets(), INPUTS, seed=2)

    for name, row in figures.items():
        assert 0.01 < row.accepted / row.inputs < 0.9, name


def test_missing_length_check_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def take(self: field_types.Reader, size: int) -> int:
        begin, self.offset = self.offset, self.offset + size
        return begin

    monkeypatch.setattr(field_types.Reader, "take", take)

    with pytest.raises(Violation, match=r"error|IndexError") as error:
        _fuzz()

    assert not isinstance(error.value.__cause__, MalformedMessage)


def test_missing_charge_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def take(self: Any, count: int) -> None:
        pass

    monkeypatch.setattr(field_types.Elements, "take", take)

    with pytest.raises(Violation, match="charged"):
        _fuzz()


def test_field_that_is_not_encoded_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        schema._One, "write", lambda self, parts, values: parts.append(b"\0" if self._flexible else b"\0\0")
    )

    with pytest.raises(Violation, match=r"encoded|MalformedMessage|error"):
        _fuzz()


def test_response_that_cannot_be_encoded_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def respond(values: dict[str, Any], version: int) -> dict[str, Any]:
        return {"brokers": [{"node_id": "x"}]}

    monkeypatch.setitem(fuzz.handlers(), METADATA, respond)

    with pytest.raises(Violation):
        _fuzz("request Metadata")
