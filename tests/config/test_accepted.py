"""Descriptions of accepted values."""

from collections.abc import Iterator

import msgspec

from kactl.config.accepted import accepted
from kactl.config.settings import Config
from kactl.config.values import Duration, Section


def keys(section: type[Section]) -> Iterator[object]:
    for field in msgspec.structs.fields(section):
        if isinstance(field.type, type) and issubclass(field.type, Section):
            yield from keys(field.type)
        elif field.type is not Duration:
            yield field.type


def test_type_of_every_key_is_described_without_names_of_python() -> None:
    described = {accepted(expected) for expected in keys(Config)}

    assert "true or false" in described
    assert not [text for text in described if any(name in text for name in ("int", "str", "bool", "`"))]
