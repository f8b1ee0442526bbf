"""Options of kafka-topics.sh: valid combinations and values, checked before any request.

Source: TopicCommand of Kafka 3.9.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kactl.cli.exits import Failure

from .common import KafkaUsage, number, repeated

ACTIONS: Final = ("list", "create", "delete", "describe", "alter")
REPORTS: Final = (
    "under_replicated_partitions",
    "unavailable_partitions",
    "under_min_isr_partitions",
    "at_min_isr_partitions",
)
# Actions that accept an option; options not listed are accepted by all.
_ACCEPTED_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "config": ("create", "alter"),
    "delete_config": ("alter",),
    "partitions": ("create", "alter"),
    "replication_factor": ("create",),
    "replica_assignment": ("create", "alter"),
    **dict.fromkeys(REPORTS, ("describe",)),
    "topics_with_overrides": ("describe",),
    "if_exists": ("alter", "delete", "describe"),
    "if_not_exists": ("create",),
    "exclude_internal": ("list", "describe"),
}
# Options that exclude others.
_EXCLUDES: Final[Mapping[str, tuple[str, ...]]] = {
    "replica_assignment": ("partitions", "replication_factor"),
    **dict.fromkeys(REPORTS, ("topics_with_overrides",)),
}
_FACTOR_MAX: Final = 2**15 - 1
_ID_LENGTH: Final = 16
_ID_TEXT_MAX: Final = 24


def action_of(given: Mapping[str, Any]) -> str:
    """Returns the requested action.

    Raises:
        KafkaUsage: there is not exactly one action, or its options are incomplete or not accepted.
    """
    actions = [name for name in ACTIONS if given[name]]
    if len(actions) != 1:
        raise KafkaUsage("Command must include exactly one action: --list, --describe, --create, --alter or --delete")
    (action,) = actions
    used = {name for name, value in given.items() if value not in (None, False, ())}
    if action == "describe" and "if_exists" in used and not used & {"topic", "topic_id"}:
        raise KafkaUsage("--topic or --topic-id is required to describe a topic")
    if action not in ("list", "describe"):
        _require("topic", used)
    if action == "alter":
        if used & {"config", "delete_config"}:
            raise KafkaUsage("overrides are changed with kafka-configs, or with `kactl topic set`")
        _require("partitions", used)
    for option, others in _ACCEPTED_BY.items():
        if option in used and action not in others:
            raise _excluded(option, action)
    for option, others in _EXCLUDES.items():
        # --alter accepts an assignment together with the number of partitions.
        for other in others if (option, action) != ("replica_assignment", "alter") else ():
            if {option, other} <= used:
                raise _excluded(option, other)
    return action


def check_counts(partitions: int | None, replication_factor: int | None) -> None:
    """Check the number of partitions and the replication factor.

    Raises:
        Failure: one is out of range.
    """
    if replication_factor is not None and not 1 <= replication_factor <= _FACTOR_MAX:
        raise Failure(f"The replication factor must be between 1 and {_FACTOR_MAX} inclusive")
    if partitions is not None and partitions < 1:
        raise Failure("The partitions must be greater than 0")


def assignment(text: str) -> list[list[int]]:
    """Parse `1:2,2:3`: colons separate replicas, commas separate partitions.

    Raises:
        Failure: the text is invalid, or partitions differ in their number of replicas.
    """
    replicas_of = [[number(broker) for broker in part.split(":")] for part in text.split(",")]
    for partition, replicas in enumerate(replicas_of):
        if duplicates := repeated(replicas):
            raise Failure(
                f"Partition replica lists may not contain duplicate entries: {','.join(map(str, duplicates))}"
            )
        if len(replicas) != len(replicas_of[0]):
            raise Failure(f"Partition {partition} has different replication factor: {replicas}")
    return replicas_of


def overrides(texts: Iterable[str]) -> dict[str, str]:
    """Parse texts of the form `key=value`.

    Raises:
        Failure: a text is invalid.
    """
    values = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise Failure(
                'requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".'
            )
        values[key.strip()] = value.strip()
    return values


def check_id(text: str) -> None:
    """Check that a text is a topic id.

    Raises:
        Failure: it is not.
    """
    if len(text) > _ID_TEXT_MAX:
        raise Failure(f"Input string with prefix `{text[:_ID_TEXT_MAX]}` is too long to be decoded as a base64 UUID")
    if illegal := re.search(r"[^A-Za-z0-9_-]", text):
        raise Failure(f"Illegal base64 character {ord(illegal[0]):x}")
    try:
        length = len(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except binascii.Error:
        raise Failure(f"Input string `{text}` is not a base64-encoded UUID") from None
    if length != _ID_LENGTH:
        raise Failure(
            f"Input string `{text}` decoded as {length} bytes, which is not equal to the expected {_ID_LENGTH} bytes "
            "of a base64-encoded UUID"
        )


def _require(option: str, used: set[str]) -> None:
    if option not in used:
        raise KafkaUsage(f'Missing required argument "[{option}]"')


def _excluded(option: str, other: str) -> KafkaUsage:
    return KafkaUsage(f'Option "[{_flag(option)}]" can\'t be used with option "[{_flag(other)}]"')


def _flag(option: str) -> str:
    return option.replace("_", "-")
