"""Hostile requests of every kind and version that the listener reads, generated from its field tables."""

import struct
from collections.abc import Callable, Iterator
from typing import Any

from kactl.transports.kafka.codec.primitive import uvarint
from kactl.transports.kafka.listener.api import Api
from kactl.transports.kafka.listener.api_keys import CONTROLLED_SHUTDOWN
from kactl.transports.kafka.listener.field_types import TAGS_MAX, Array, Field, Fixed, Varying
from kactl.transports.kafka.listener.limits import Limits

_NO_TAGS = b"\0"
# A count and its members, or tagged fields. None leaves the field unchanged.
Instead = Callable[[str, bool, bytes], bytes | None]


def compact_or_classic(size: int, flexible: bool) -> bytes:
    return uvarint(size + 1) if flexible else struct.pack(">i", size)


def places(api: Api, version: int) -> list[str]:
    """Return the array paths of a request version; inner arrays follow the outer ones."""
    paths: list[str] = []

    def note(path: str, flexible: bool, member: bytes) -> None:
        if path not in paths:
            paths.append(path)

    body(api, version, note)
    return sorted((path for path in paths if not path.endswith("#")), key=lambda path: path.count("."))


def body(api: Api, version: int, instead: Instead = lambda path, flexible, member: None) -> bytes:
    """Return a request with one member in each array, with the fields that `instead` chooses replaced."""
    return _struct(api.request.fields, version, api.request.is_flexible(version), "", instead)


def _struct(fields: tuple[Field, ...], version: int, flexible: bool, path: str, instead: Instead) -> bytes:
    parts = []
    for field in fields:
        if field.since <= version <= field.until:
            parts.append(_value(field.kind, version, flexible, f"{path}.{field.name}", instead))
    if flexible:
        tags = instead(f"{path}#", flexible, b"")
        parts.append(_NO_TAGS if tags is None else tags)
    return b"".join(parts)


def _value(kind: Any, version: int, flexible: bool, path: str, instead: Instead) -> bytes:
    if isinstance(kind, Array):
        if type(kind.of) is tuple:
            member = _struct(kind.of, version, flexible, path, instead)
        else:
            member = _value(kind.of, version, flexible, path, instead)
        other = instead(path, flexible, member)
        return compact_or_classic(1, flexible) + member if other is None else other
    if isinstance(kind, Fixed):
        return bytes(kind.size)
    assert isinstance(kind, Varying)
    return (b"\2" if flexible else struct.pack(f">{kind.prefix}", 1)) + b"t"


def frame(api: Api, version: int, content: bytes) -> bytes:
    """Return a whole frame around a body."""
    header = b"" if (api.key, version) == (CONTROLLED_SHUTDOWN, 0) else b"\0\1c"
    if header and api.request.is_flexible(version):
        header += _NO_TAGS
    return struct.pack(">ihhi", 8 + len(header) + len(content), api.key, version, 1) + header + content


def hostile(api: Api, version: int) -> Iterator[tuple[str, bytes]]:
    """Return frames that must be rejected, by their defect."""
    valid = body(api, version)
    flexible = api.request.is_flexible(version)
    for cut in {1, len(valid) // 2, len(valid)}:
        if not 0 < cut <= len(valid):
            continue
        yield f"{cut} bytes too short", frame(api, version, valid[:-cut])
    for count in (2**31 - 1, 2**20):
        if flexible:
            yield f"{count} tagged fields", frame(api, version, valid[:-1] + uvarint(count))
    if flexible:
        yield (
            "more tags than are taken",
            frame(api, version, valid[:-1] + uvarint(TAGS_MAX + 1) + b"\x64\0" * (TAGS_MAX + 1)),
        )
        yield "a tag beyond the end", frame(api, version, valid[:-1] + b"\1\x64\xff\xff\xff\xff\7")
        yield "a varint of six bytes", frame(api, version, valid[:-1] + b"\xff\xff\xff\xff\xff\1")
    elements = Limits().elements_max(api, is_broker=False) + 1
    for place in places(api, version):
        for count in (2**31 - 2, len(valid) * 2 + 1000):
            yield f"{count} of {place}", frame(api, version, _with(api, version, place, count, 1))
        if not flexible:
            yield f"-2 of {place}", frame(api, version, _with(api, version, place, -2, 1))
        many = _with(api, version, place, elements, elements)
        # Integers are many to an element: the maximum number would exceed the size limit of a request.
        if len(many) < Limits().request_size_max - 100:
            content = many if not _is_of_ints(api, place) else _with(api, version, place, 8 * elements, 8 * elements)
            yield f"too many of {place}", frame(api, version, content)


def _with(api: Api, version: int, place: str, announced: int, members: int) -> bytes:
    """Return an array with that many members, and the same announced count."""
    return body(
        api,
        version,
        lambda path, flexible, member: (
            compact_or_classic(announced, flexible) + member * members if path == place else None
        ),
    )


def _is_of_ints(api: Api, place: str) -> bool:
    fields: Any = api.request.fields
    kind: Any = None
    for name in place.split(".")[1:]:
        kind = next(field.kind for field in fields if field.name == name)
        fields = getattr(kind, "of", ())
    return isinstance(kind.of, Fixed)
