"""Oracles for the requests of the listener find bugs that are planted in the decoders."""

from typing import Any

import pytest

from kactl.model.errors import MalformedMessage
from kactl.transports.kafka.listener import field_types, schema
from kactl.transports.kafka.listener.api_keys import METADATA
from kactl.transports.kafka.listener.apis import APIS
from kactl.transports.kafka.listener.config_apis import CONFIG_APIS
from kactl.transports.kafka.listener.relayed_apis import RELAYED_APIS
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


def _mistaken(monkeypatch: pytest.MonkeyPatch, right: str, wrong: str) -> None:
    """Put a mistake into the code that is generated for each message."""

    def compiled(source: str, file: str, mode: str) -> Any:
        return compile(source.replace(right, wrong), file, mode)

    monkeypatch.setattr(schema, "compile", compiled, raising=False)
    for api in (*APIS.values(), *RELAYED_APIS.values(), *CONFIG_APIS.values()):
        for message in (api.request, api.response):
            monkeypatch.setattr(message, "_readers", {})
            monkeypatch.setattr(message, "_writers", {})


def test_error_that_is_not_translated_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    _mistaken(monkeypatch, "except (struct_error, IndexError)", "except ZeroDivisionError")

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
    _mistaken(monkeypatch, ".encode()", ".encode()[:0]")

    with pytest.raises(Violation, match=r"encoded|MalformedMessage|error"):
        _fuzz()


def test_response_that_cannot_be_encoded_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def respond(values: dict[str, Any], version: int) -> dict[str, Any]:
        return {"brokers": [{"node_id": "x"}]}

    monkeypatch.setitem(fuzz.handlers(), METADATA, respond)

    with pytest.raises(Violation):
        _fuzz("request Metadata")
