"""Which broker stands in which rack: said on the command line, or in a file.

1=a,2=a,3=b
[{"id": 1, "rack": "a", "state": "live"}, ...]      what `kactl get brokers -o json` prints
{"1": "a", "2": "a"}
broker-1:9092 (id: 1 rack: a) -> (                  what `kafka-broker-api-versions.sh` prints
"""

import dataclasses
import re
from pathlib import Path
from typing import Final

import msgspec

from kactl.forensics.whatif.partitions import BadSnapshot

from .builder import ID_MAX

_PAIR: Final = re.compile(r"\s*(\d+)\s*[=:,;\t ]\s*([^\s,;=]+)\s*", re.ASCII)
_LISTED: Final = re.compile(r"\(id: (\d+) rack: ([^\s)]+)[ )]", re.ASCII)
_NO_RACK: Final = "null"
_FORM: Final = "write 1=a,2=a,3=b, or a file with one such pair to a line, or what `kactl get brokers -o json` prints"


class BadRacks(BadSnapshot):
    """Racks that cannot be understood."""


@dataclasses.dataclass(frozen=True, slots=True)
class Racks:
    """What was said of brokers: the racks of those that have one, and who is alive or away where that was said."""

    of: dict[int, str]
    alive: frozenset[int] = frozenset()
    away: frozenset[int] = frozenset()


class Broker(msgspec.Struct, frozen=True):
    """One broker, as kactl prints it."""

    id: int
    rack: str | None = None
    state: str | None = None


class BrokerPage(msgspec.Struct, frozen=True):
    """An answer of the API."""

    items: list[Broker]


def read(text: str) -> Racks:
    """The racks that an option stands for: the pairs themselves, or the name of a file.

    Raises:
        BadRacks: it is neither.
    """
    path = Path(text)
    try:
        # Also a pipe, as a shell's <(kactl get brokers -o json) is.
        is_file = path.exists() and not path.is_dir()
    except (OSError, ValueError):
        is_file = False
    if is_file:
        try:
            return of_text(path.read_text(encoding="utf-8", errors="replace"), text)
        except OSError as error:
            raise BadRacks("--racks", f"{text} cannot be read ({error.strerror})") from None
    if "=" not in text:
        raise BadRacks("--racks", f"there is no file {text}; {_FORM}")
    return _pairs([("", part) for part in text.split(",") if part.strip()], "--racks")


def of_text(text: str, source: str) -> Racks:
    """The racks in what a file holds.

    Raises:
        BadRacks: it holds none, or something else.
    """
    if text.lstrip().startswith(("{", "[")):
        return _document(text, source)
    listed = _LISTED.findall(text)
    if listed:
        return Racks({int(broker): rack for broker, rack in listed if rack != _NO_RACK})
    lines = [(f"line {number}", line.partition("#")[0]) for number, line in enumerate(text.splitlines(), 1)]
    parts = [(where, part) for where, line in lines for part in _split(line)]
    return _pairs(parts, source)


def _split(line: str) -> list[str]:
    """Pairs of one line; there may be several if they are written with `=`."""
    return [part for part in line.split(",") if part.strip()] if "=" in line else [line] if line.strip() else []


def _pairs(parts: list[tuple[str, str]], source: str) -> Racks:
    found: dict[int, str] = {}
    for where, part in parts:
        match = _PAIR.fullmatch(part)
        if match is None or int(match[1]) > ID_MAX:
            raise BadRacks(
                f"{source}, {where}" if source != "--racks" else source, f"{part.strip()!r} is no pair; {_FORM}"
            )
        if found.setdefault(int(match[1]), match[2]) != match[2]:
            raise BadRacks(source, f"broker {match[1]} is in rack {found[int(match[1])]!r} and in {match[2]!r}")
    if not found:
        raise BadRacks(source, f"it names no rack; {_FORM}")
    return Racks(found)


def _document(text: str, source: str) -> Racks:
    try:
        if text.lstrip().startswith("["):
            brokers = msgspec.json.decode(text, type=list[Broker])
        elif '"items"' in text:
            brokers = msgspec.json.decode(text, type=BrokerPage).items
        else:
            return Racks(msgspec.json.decode(text, type=dict[int, str]))
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRacks(source, f"{error}; {_FORM}") from None
    return Racks(
        {each.id: each.rack for each in brokers if each.rack is not None},
        alive=frozenset(each.id for each in brokers if each.state in ("live", "shutting_down")),
        away=frozenset(each.id for each in brokers if each.state == "dead"),
    )
