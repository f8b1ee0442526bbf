"""Racks of brokers, from the command line or a file.

1=a,2=a,3=b
[{"id": 1, "rack": "a", "state": "live"}, ...]      output of `kactl get brokers -o json`
{"1": "a", "2": "a"}
broker-1:9092 (id: 1 rack: a) -> (                  output of `kafka-broker-api-versions.sh`
"""

import dataclasses
import re
from pathlib import Path
from typing import Final

import msgspec

from kactl.forensics.whatif.tables import BadSnapshot

from .builder import ID_MAX

_PAIR: Final = re.compile(r"\s*(\d+)\s*[=:,;\t ]\s*([^\s,;=]+)\s*", re.ASCII)
_LISTED: Final = re.compile(r"\(id: (\d+) rack: ([^\s)]+)[ )]", re.ASCII)
_NO_RACK: Final = "null"
_FORM: Final = "write 1=a,2=a,3=b, or use a file with one pair per line or the output of `kactl get brokers -o json`"


class BadRacks(BadSnapshot):
    """Racks cannot be read."""


@dataclasses.dataclass(frozen=True, slots=True)
class Racks:
    """Racks by broker, and the brokers known to be alive or away."""

    of: dict[int, str]
    alive: frozenset[int] = frozenset()
    away: frozenset[int] = frozenset()


class Broker(msgspec.Struct, frozen=True):
    """A broker in the output of kactl."""

    id: int
    rack: str | None = None
    state: str | None = None


class BrokerPage(msgspec.Struct, frozen=True):
    """A response of `/v1/brokers`."""

    items: list[Broker]


def read(text: str) -> Racks:
    """Read the value of an option: pairs, or the name of a file.

    Raises:
        BadRacks: it is neither.
    """
    path = Path(text)
    try:
        # The file may be a pipe, such as a shell's <(kactl get brokers -o json).
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
    """Read the content of a file.

    Raises:
        BadRacks: it has no racks, or another format.
    """
    if text.lstrip().startswith(("{", "[")):
        return _document(text, source)
    listed = _LISTED.findall(text)
    if listed:
        return Racks({int(broker): rack for broker, rack in listed if rack != _NO_RACK})
    lines = [(f"line {number}", line.partition("#")[0]) for number, line in enumerate(text.splitlines(), 1)]
    parts = [(position, part) for position, line in lines for part in _split(line)]
    return _pairs(parts, source)


def _split(line: str) -> list[str]:
    """Return the pairs of a line, which may have several if they are written with `=`."""
    return [part for part in line.split(",") if part.strip()] if "=" in line else [line] if line.strip() else []


def _pairs(parts: list[tuple[str, str]], source: str) -> Racks:
    racks: dict[int, str] = {}
    for position, part in parts:
        match = _PAIR.fullmatch(part)
        if match is None or int(match[1]) > ID_MAX:
            raise BadRacks(
                f"{source}, {position}" if source != "--racks" else source, f"{part.strip()!r} is not a pair; {_FORM}"
            )
        if racks.setdefault(int(match[1]), match[2]) != match[2]:
            raise BadRacks(source, f"broker {match[1]} is in rack {racks[int(match[1])]!r} and in {match[2]!r}")
    if not racks:
        raise BadRacks(source, f"it names no rack; {_FORM}")
    return Racks(racks)


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
        {broker.id: broker.rack for broker in brokers if broker.rack is not None},
        alive=frozenset(broker.id for broker in brokers if broker.state in ("live", "drained", "shutting_down")),
        away=frozenset(broker.id for broker in brokers if broker.state == "dead"),
    )
