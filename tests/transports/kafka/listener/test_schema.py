"""Every message in every version is what kio says it is; and what is no message is refused, whatever it is."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema

from kactl.errors import MalformedMessage
from kactl.transports.kafka.listener.api import Api
from kactl.transports.kafka.listener.api_keys import API_VERSIONS, CREATE_TOPICS, METADATA
from kactl.transports.kafka.listener.apis import APIS
from kactl.transports.kafka.listener.config_apis import CONFIG_APIS
from kactl.transports.kafka.listener.schema import INT8, INT16, STRING, Array, Field, Message

from .client import encoded
from .kio_entities import entities, plain

VERSIONS = [(api, version) for api in (APIS | CONFIG_APIS).values() for version in range(api.version_max + 1)]
NAMES = [f"{api.name} {version}" for api, version in VERSIONS]
# What is tagged, and never said by us.
UNSAID = {
    API_VERSIONS: {"supported_features", "finalized_features_epoch", "finalized_features", "zk_migration_ready"},
    CREATE_TOPICS: {"topic_config_error_code"},
}


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=NAMES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_request_is_read_as_kio_writes_it(api: Api, version: int, data: st.DataObject) -> None:
    entity = data.draw(entities(load_request_schema(api.key, version)))

    read = api.request.read(encoded(entity), version)

    assert _there(read, api.request.fields, version) == plain(entity)


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=NAMES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_an_answer_is_written_as_kio_writes_it(api: Api, version: int, data: st.DataObject) -> None:
    entity = data.draw(entities(load_response_schema(api.key, version)))
    values = {name: value for name, value in plain(entity).items() if name not in UNSAID.get(api.key, ())}
    if api.key == METADATA:
        from dataclasses import replace

        entity = replace(entity, topics=tuple(replace(topic, partitions=()) for topic in entity.topics))
        values = plain(entity)

    written = api.response.write(values, version)

    assert written == encoded(entity)


def _there(values: dict[str, Any], described: tuple[Field, ...], version: int) -> dict[str, Any]:
    """Without what the version does not have, which is read as its default."""
    kept = {}
    for field in described:
        if not field.since <= version <= field.until:
            continue
        value = values[field.name]
        inner = getattr(field.kind, "of", None)
        if isinstance(value, list) and isinstance(inner, tuple) and isinstance(inner[0], Field):
            value = [_there(member, inner, version) for member in value]
        kept[field.name] = value
    return kept


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=NAMES)
@settings(max_examples=15, deadline=None)
@given(content=st.binary(max_size=200))
def test_what_is_no_request_is_refused_and_nothing_worse(api: Api, version: int, content: bytes) -> None:
    try:
        values = api.request.read(content, version)
    except MalformedMessage:
        return
    assert values.keys() == {field.name for field in api.request.fields}


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=NAMES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_request_that_was_cut_or_changed_is_refused_or_read(api: Api, version: int, data: st.DataObject) -> None:
    content = bytearray(encoded(data.draw(entities(load_request_schema(api.key, version)))))
    cut = data.draw(st.integers(0, len(content)))
    del content[cut:]
    for at in data.draw(st.lists(st.integers(0, max(cut - 1, 0)), max_size=4)) if cut else ():
        content[at] = data.draw(st.integers(0, 255))

    try:
        values = api.request.read(bytes(content), version)
    except MalformedMessage:
        return
    assert values.keys() == {field.name for field in api.request.fields}


def test_an_array_that_is_announced_larger_than_what_is_left_is_refused_before_it_is_made() -> None:
    alter_partition = APIS[56].request

    with pytest.raises(MalformedMessage, match="members are announced"):
        alter_partition.read(bytes(12) + b"\xff\xff\xff\xff\x0f", 3)


PAIR = Message(
    Field("name", STRING),
    Field("level", INT16, since=1, default=7),
    Field("kind", INT8, tag=3),
    flexible=1,
)


def test_tagged_fields_of_strangers_are_passed_over() -> None:
    assert PAIR.read(b"\x02a\x00\x05" + b"\x02" + b"\x01\x02zz" + b"\x09\x00", 1) == {
        "name": "a",
        "level": 5,
        "kind": 0,
    }


def test_a_field_that_a_version_does_not_have_reads_as_its_default_and_is_not_written() -> None:
    assert PAIR.read(b"\x00\x01a", 0) == {"name": "a", "level": 7, "kind": 0}
    assert PAIR.write({"name": "a", "level": 9, "kind": 4}, 0) == b"\x00\x01a"
    assert PAIR.write({"name": "a", "level": 9, "kind": 4}, 1) == b"\x02a\x00\x09" + b"\x01\x03\x01\x04"
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
def test_plain_structs_side_by_side_are_read_with_tags_and_without(content: bytes, version: int) -> None:
    assert PAIRS.read(content, version) == {"pairs": [{"id": 1, "level": 5}, {"id": 2, "level": 6}]}


def test_plain_structs_that_are_not_all_there_are_refused() -> None:
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
        (b"\x02a\x00\x05\x00\x00", 1, "left over"),
        (b"\x7fa", 1, "are announced"),
        (b"\xff\xff\xff\xff\xff\x01", 1, "a varint of more than"),
    ],
)
def test_mistakes_are_named(content: bytes, version: int, reason: str) -> None:
    with pytest.raises(MalformedMessage, match=reason):
        PAIR.read(content, version)
