"""Validation and conversion of the arguments of public methods.

A partition may be given as `orders-0`, an election as `preferred`. An invalid argument raises BadRequest with its name,
the value and the valid values; no request is sent to the controller.
"""

import operator
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar

from kactl.model import UNTIL_MS_MAX, Assignment, TopicPartition, TopicRef
from kactl.model.errors import BadRequest

from .admin import ElectionKind

AnyPartition = TopicPartition | str
AnyElection = ElectionKind | str
V = TypeVar("V")


def partition(value: AnyPartition, field: str = "partition") -> TopicPartition:
    """Returns the name of a partition."""
    if isinstance(value, str):
        try:
            return TopicPartition.parse(value)
        except ValueError as error:
            raise BadRequest(field, str(error)) from None
    if not isinstance(value, TopicPartition):
        raise BadRequest(field, f"{value!r} is not a partition: give a TopicPartition, or text such as 'orders-0'")
    return value


def partitions(values: Iterable[AnyPartition], field: str = "partitions") -> tuple[TopicPartition, ...]:
    """Returns the names of partitions, in order."""
    # A single name would otherwise be read as a sequence of letters.
    if isinstance(values, str | TopicPartition):
        raise BadRequest(field, f"{str(values)!r} is one partition: give a list of them, ['{values}']")
    listed = _listed(values, field, "partitions")
    return tuple(partition(value, f"{field}[{number}]") for number, value in enumerate(listed))


def by_partition(values: Mapping[AnyPartition, V], field: str) -> dict[TopicPartition, V]:
    """Returns a mapping with partition names as keys. A partition that is named twice is rejected."""
    if not isinstance(values, Mapping):
        raise BadRequest(field, f"{values!r} is not a mapping: give one such as {{'orders-0': [1, 2, 3]}}")
    result: dict[TopicPartition, V] = {}
    for key, value in values.items():
        name = partition(key, field)
        if name in result:
            raise BadRequest(field, f"partition {name} is named twice")
        result[name] = value
    return result


def election(value: AnyElection, field: str = "kind") -> ElectionKind:
    """Returns the kind of an election."""
    try:
        return ElectionKind(value)
    except ValueError:
        allowed = " or ".join(repr(kind.value) for kind in ElectionKind)
        raise BadRequest(field, f"{value!r} is not a kind of election: use {allowed}") from None


def text(value: str, field: str) -> str:
    """Returns a str."""
    if not isinstance(value, str):
        raise BadRequest(field, f"{value!r} is not text: give a str")
    return value


def topic(value: str | TopicRef, field: str = "topic") -> TopicRef:
    """Returns a topic that was given by its name, for all topics of that name, or as a TopicRef."""
    return value if isinstance(value, TopicRef) else TopicRef(text(value, field))


def whole(value: int, field: str) -> int:
    """Returns an integer; numpy integers are accepted, True and False are not."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise BadRequest(field, f"{value!r} is not a whole number: give an int")


def until(value: int) -> int:
    """Returns a time limit in ms since 1970. Whether it has passed is checked by the clock of the controller."""
    if whole(value, "until_ms") > UNTIL_MS_MAX:
        raise BadRequest("until_ms", f"{value} is later than the year 9999: give milliseconds since 1970")
    return value


def flag(value: bool, field: str) -> bool:
    """Returns True or False. Text such as 'false' is rejected, because it would be true."""
    if not isinstance(value, bool):
        raise BadRequest(field, f"{value!r} is neither True nor False")
    return value


def brokers(values: Iterable[int], field: str) -> tuple[int, ...]:
    """Returns broker ids, in order."""
    listed = _listed(values, field, "broker ids")
    return tuple(whole(value, f"{field}[{number}]") for number, value in enumerate(listed))


def names(values: Iterable[str], field: str) -> tuple[str, ...]:
    """Returns texts, each once, in order."""
    if isinstance(values, str):
        raise BadRequest(field, f"{values!r} is one text: give a list such as [{values!r}]")
    return tuple(sorted({text(value, field) for value in _listed(values, field, "names")}))


def settings(values: Mapping[str, str], field: str = "config") -> dict[str, str]:
    """Returns the keys and values of a topic's configuration."""
    if not isinstance(values, Mapping):
        raise BadRequest(field, f"{values!r} is not a mapping: give one such as {{'retention.ms': '60000'}}")
    for key, value in values.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise BadRequest(field, f"{key!r}: {value!r} is not text: give both as str, as Kafka keeps them")
    return dict(values)


def implements(value: object, protocol: type, field: str) -> None:
    """Check that an object has all members of a protocol. None passes."""
    if value is None:
        return
    missing = sorted(name for name in _members(protocol) if not hasattr(value, name))
    if missing:
        where = f"{protocol.__module__}.{protocol.__name__}"
        raise BadRequest(field, f"{type(value).__name__} lacks {', '.join(missing)}: implement {where}")


def _members(protocol: type) -> set[str]:
    """Returns the public members of a protocol, and the methods of an asynchronous context manager."""
    own = [base for base in protocol.__mro__ if getattr(base, "_is_protocol", False) and base is not Protocol]
    names = {name for base in own for name in vars(base)}
    return {name for name in names if not name.startswith("_") or name in ("__aenter__", "__aexit__")}


def _listed(values: Iterable[Any], field: str, kind: str) -> list[Any]:
    if not isinstance(values, str | bytes):
        try:
            return list(values)
        except TypeError:
            pass
    raise BadRequest(field, f"{values!r} is not a list of {kind}")


def assignments(given: Mapping[int, Iterable[int]]) -> dict[int, Assignment]:
    """Returns replicas by partition."""
    if not isinstance(given, Mapping):
        raise BadRequest("assignment", f"{given!r} is not a mapping: give one such as {{0: [1, 2], 1: [2, 3]}}")
    return {
        whole(number, "assignment"): Assignment(brokers(replicas, f"assignment[{number}]"))
        for number, replicas in given.items()
    }
