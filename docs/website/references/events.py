"""Reference of events: records of the event log, and controller events that they name as their trigger."""

import inspect
import typing
from collections.abc import Collection, Iterator
from typing import Any, Final

import msgspec

from kactl.decide.messages import events, log

from .docstrings import cell, escaped, markdown, parsed
from .types import type_name

_HEAD: Final = """# Events

A record of the event log is a JSON object with its `kind` and the fields below. `kactl watch -o jsonl`, the
[event stream](api.md#get-v1eventsstream) and the state-change log (`[log]` in the configuration) write records in this
form, and `Controller.events()` returns them as objects. Fields with their default may be absent."""
_TRIGGERS: Final = """## Controller events

The controller handles one of these events at a time. `because.trigger` of a record is the name of the event that made
the change, and `kactl controller queue` lists the events that wait."""


def events_page() -> str:
    """Returns the page: a section for each kind of record, and a table of controller events."""
    common = ("## Fields of all records", _fields(log.Event, ()))
    kinds = [part for kind in typing.get_args(log.AnyEvent) for part in _record(kind)]
    cause = ("## Fields of `because`", *_struct(log.Cause))
    return "\n\n".join((_HEAD, *common, *kinds, *cause, _TRIGGERS, _triggers())) + "\n"


def _record(kind: type[msgspec.Struct]) -> Iterator[str]:
    yield f"## `{kind.__struct_config__.tag}`"
    yield from _struct(kind)


def _struct(kind: type[msgspec.Struct]) -> Iterator[str]:
    yield parsed(kind).text
    yield _fields(kind, log.Event.__struct_fields__)


def _fields(kind: type[msgspec.Struct], without: Collection[str]) -> str:
    words = parsed(kind).entries("Attributes")
    fields = [field for field in msgspec.structs.fields(kind) if field.name not in without]
    meanings = [cell(escaped(words.get(field.name, ""))) for field in fields]
    rows = (
        f"| `{field.encode_name}` | {cell(escaped(type_name(field.type)))} | {meaning} |"
        for field, meaning in zip(fields, meanings, strict=True)
    )
    return "\n".join(("| field | type | meaning |", "| --- | --- | --- |", *rows))


def _triggers() -> str:
    rows = (f"| `{kind.__name__}` | {cell(markdown_summary(kind))} |" for kind in _controller_events())
    return "\n".join(("| event | meaning |", "| --- | --- |", *rows))


def markdown_summary(found: Any) -> str:
    """Returns the first paragraph of a docstring."""
    return markdown(found).split("\n\n")[0]


def _controller_events() -> list[type]:
    found = [
        member
        for member in vars(events).values()
        if inspect.isclass(member) and member.__module__ == events.__name__ and not member.__name__.startswith("_")
    ]
    return sorted(found, key=lambda kind: kind.__name__)
