"""Codec of listener messages: every message in every version agrees with kio, and invalid bytes are rejected."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema

from kactl.model.errors import MalformedMessage
from kactl.transports.kafka.listener.api import Api
from kactl.transports.kafka.listener.api_keys import API_VERSIONS, CREATE_TOPICS, METADATA
from kactl.transports.kafka.listener.apis import APIS
from kactl.transports.kafka.listener.config_apis import CONFIG_APIS
from kactl.transports.kafka.listener.field_types import (
    INT8,
    INT16,
    INT32,
    STEP,
    STRING,
    Array,
    Elements,
    Field,
    Steps,
)
from kactl.transports.kafka.listener.relayed_apis import RELAYED_APIS
from kactl.transports.kafka.listener.schema import Message
from tests.support.marks import at_most

from .client import encoded
from .kio_entities import entities, plain

VERSIONS = [
    (api, version) for api in (APIS | RELAYED_APIS | CONFIG_APIS).values() for version in range(api.version_max + 1)
]
NAMES = [f"{api.name} {version}" for api, version in VERSIONS]
# Each message in its first and its last version is a fast test.
CASES = [
    pytest.param(api, version, marks=[] if version in (0, api.version_max) else pytest.mark.slow)
    for api, version in VERSIONS
]
# Tagged fields that the listener never writes.
UNSAID = {
    API_VERSIONS: {"supported_features", "finalized_features_epoch", "finalized_features", "zk_migration_ready"},
    CREATE_TOPICS: {"topic_config_error_code"},
}


@pytest.mark.parametrize(("api", "version"), CASES, ids=NAMES)
@settings(max_examples=at_most(15), deadline=None)
@given(data=st.data())
def test_request_is_read_as_kio_writes_it(api: Api, version: int, data: st.DataObject) -> None:
    entity = data.draw(entities(load_request_schema(api.key, version)))

    read = api.request.read(encoded(entity), version)

    assert _there(read, api.request.fields, version) == plain(entity)


@pytest.mark.parametrize(("api", "version"), CASES, ids=NAMES)
@settings(max_examples=at_most(15), deadline=None)
@given(data=st.data())
def test_response_is_written_as_kio_writes_it(api: Api, version: int, data: st.DataObject) -> None:
    entity = data.draw(entities(load_response_schema(api.key, version)))
    values = {name: value for name, value in plain(entity).items() if name not in UNSAID.get(api.key, ())}
    if api.key == METADATA:
        from dataclasses import replace

        entity = replace(entity, topics=tuple(replace(topic, partitions=()) for topic in entity.topics))
        values = plain(entity)

    written = api.response.write(values, version)

    assert written == encoded(entity)


def _there(values: dict[str, Any], described: tuple[Field, ...], version: int) -> dict[str, Any]:
    """Return the message without the fields that the version lacks; those are read as their defaults."""
    present = {}
    for field in described:
        if not field.since <= version <= field.until:
            continue
        value = values[field.name]
        inner = getattr(field.kind, "of", None)
        if isinstance(value, list) and isinstance(inner, tuple) and isinstance(inner[0], Field):
            value = [_there(member, inner, version) for member in value]
        present[field.name] = value
    return present


@pytest.mark.parametrize(("api", "version"), CASES, ids=NAMES)
@settings(max_examples=at_most(15), deadline=None)
@given(content=st.binary(max_size=200))
def test_invalid_request_raises_malformed_message_only(api: Api, version: int, content: bytes) -> None:
    try:
        values = api.request.read(content, version)
    except MalformedMessage:
        return
    assert values.keys() == {field.name for field in api.request.fields}


@pytest.mark.parametrize(("api", "version"), CASES, ids=NAMES)
@settings(max_examples=at_most(15), deadline=None)
@given(data=st.data())
def test_truncated_or_changed_request_is_rejected_or_read(api: Api, version: int, data: st.DataObject) -> None:
    content = bytearray(encoded(data.draw(entities(load_request_schema(api.key, version)))))
    cut = data.draw(st.integers(0, len(content)))
    del content[cut:]
    for offset in data.draw(st.lists(st.integers(0, max(cut - 1, 0)), max_size=4)) if cut else ():
        content[offset] = data.draw(st.integers(0, 255))

    try:
        values = api.request.read(bytes(content), version)
    except MalformedMessage:
        return
    assert values.keys() == {field.name for field in api.request.fields}


def test_oversized_array_length_is_rejected_before_allocation() -> None:
    alter_partition = APIS[56].request

    with pytest.raises(MalformedMessage, match="members are announced"):
        alter_partition.read(bytes(12) + b"\xff\xff\xff\xff\x0f", 3)


PAIR = Message(
    Field("name", STRING),
    Field("level", INT16, since=1, default=7),
    flexible=1,
)


def test_unknown_tagged_fields_are_skipped() -> None:
    assert PAIR.read(b"\x02a\x00\x05" + b"\x02" + b"\x01\x02zz" + b"\x09\x00", 1) == {
        "name": "a",
        "level": 5,
    }


def test_field_missing_in_a_version_has_its_default_and_is_not_written() -> None:
    assert PAIR.read(b"\x00\x01a", 0) == {"name": "a", "level": 7}
    assert PAIR.write({"name": "a", "level": 9}, 0) == b"\x00\x01a"
    assert PAIR.write({"name": "a", "level": 9}, 1) == b"\x02a\x00\x09\x00"
    assert PAIR.write({"name": "a"}, 1) == b"\x02a\x00\x07\x00"


PAIRS = Message(Field("pairs", Array((Field("id", INT8), Field("level", INT16)))), flexible=1)


@pytest.mark.parametrize(
    ("content", "version"),
    [
        (b"\x00\x00\x00\x02" + b"\x01\x00\x05" + b"\x02\x00\x06", 0),
        (b"\x03" + b"\x01\x00\x05\x00" + b"\x02\x00\x06\x00" + b"\x00", 1),
        (b"\x03" + b"\x01\x00\x05\x01\x07\x01z" + b"\x02\x00\x06\x00" + b"\x00", 1),
        (b"\x03" + b"\x01\x00\x05\x00" + b"\x02\x00\x06\x01\x07\x00" + b"\x00", 1),
    ],
    ids=["classic", "without tags", "a tag in the first", "a tag in the last"],
)
def test_adjacent_plain_structs_are_read_with_and_without_tags(content: bytes, version: int) -> None:
    assert PAIRS.read(content, version) == {"pairs": [{"id": 1, "level": 5}, {"id": 2, "level": 6}]}


def test_truncated_plain_structs_are_rejected() -> None:
    with pytest.raises(MalformedMessage, match="members are announced"):
        PAIRS.read(b"\x03" + b"\x01\x00\x05\x00" + b"\x02\x00\x06", 1)
    with pytest.raises(MalformedMessage, match="tagged fields are announced"):
        PAIRS.read(b"\x03" + b"\x01\x00\x05\x00" + b"\x02\x00\x06\x09", 1)


@pytest.mark.parametrize(
    ("content", "version", "reason"),
    [
        (b"\xff\xff", 0, "no name where there must be one"),
        (b"\xff\xfe", 0, "a length of -2"),
        (b"\x00", 1, "no name where there must be one"),
        (b"\x03\xc3\x28", 1, "not UTF-8"),
        (b"\x7fa", 1, "are announced"),
        (b"\xff\xff\xff\xff\xff\x01", 1, "a varint of more than"),
    ],
)
def test_invalid_schemas_are_reported(content: bytes, version: int, reason: str) -> None:
    with pytest.raises(MalformedMessage, match=reason):
        PAIR.read(content, version)


@pytest.mark.parametrize("version", [0, 1])
def test_bytes_after_a_message_are_ignored(version: int) -> None:
    content = PAIR.write({"name": "a"}, version)

    assert PAIR.read(content + b"\0\0", version) == PAIR.read(content, version)


LISTS = Message(Field("lists", Array((Field("name", STRING), Field("numbers", Array(INT32))))), flexible=1)


def steps_of(steps: Steps[Any]) -> tuple[int, Any]:
    """Return the number of steps, and the result."""
    count = 1
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return count, end.value
        count += 1


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("structs", "numbers", "expected"),
    [(STEP * 4, 3, 5), (1, STEP * 8 * 4, 5), (STEP, 100, 1 + STEP + 1)],
    ids=["many structs", "many numbers in one", "many lists"],
)
def test_large_message_is_read_and_written_in_steps(version: int, structs: int, numbers: int, expected: int) -> None:
    """The event loop runs other tasks after each; numbers are written at once, as many as the controller has."""
    values = {"lists": [{"name": "a", "numbers": list(range(numbers))}] * structs}

    written, content = steps_of(LISTS.writing(values, version))
    read, result = steps_of(LISTS.reading(content, version, elements=Elements(10**6)))

    assert result == values
    assert read in (expected, expected - 1)
    assert structs // STEP <= written <= structs // STEP + 1
