"""Options and files of kafka-reassign-partitions.sh: validation, which precedes all requests, and file format.

Source: ReassignPartitionsCommand of Kafka 3.9.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from kactl.admin.schema import ReassignmentTarget
from kactl.cli.exits import Failure
from kactl.cli.partition_files import Targeted, Targets, TopicsFile, content_of, decoded

from .common import KafkaUsage, number, repeated

_File = TypeVar("_File", Targets, TopicsFile)

_FILE: Final = "reassignment_json_file"
_TOPICS: Final = "topics_to_move_json_file"
# Options that each action requires, and those that it accepts.
_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "generate": (_TOPICS, "broker_list"),
    "execute": (_FILE,),
    "verify": (_FILE,),
    "cancel": (_FILE,),
    "list": (),
}
_TAKES: Final[Mapping[str, tuple[str, ...]]] = {
    "generate": ("disable_rack_aware",),
    "execute": ("additional", "throttle", "replica_alter_log_dirs_throttle", "timeout"),
    "verify": ("preserve_throttles",),
    "cancel": ("preserve_throttles", "timeout"),
    "list": (),
}
# The only version of the file format, and its placeholder for any log directory.
_VERSION: Final = 1
_ANY: Final = "any"


def action_of(given: Mapping[str, Any]) -> str:
    """Returns the requested action.

    Raises:
        KafkaUsage: there is not exactly one action, or its options are incomplete or not accepted.
    """
    used = [name for name, value in given.items() if value not in (None, False)]
    actions = [name for name in used if name in _NEEDS]
    if len(actions) != 1:
        raise KafkaUsage("Command must include exactly one action: --generate, --execute, --verify, --cancel, --list")
    (action,) = actions
    for option in _NEEDS[action]:
        if option not in used:
            raise KafkaUsage(f'Missing required argument "[{_flag(option)}]"')
    for option in used:
        if option not in (action, *_NEEDS[action], *_TAKES[action]):
            raise KafkaUsage(f'Option "[{_flag(option)}]" can\'t be used with action "[{action}]"')
    if {"throttle", "replica_alter_log_dirs_throttle"} & {*used}:
        raise KafkaUsage("kactl does not throttle replication: omit the throttle, or set it with kafka-configs")
    return action


def targets(given: Mapping[str, Any]) -> list[Targeted]:
    """Returns the targets of the file.

    Raises:
        Failure: the file is invalid.
    """
    file = _read(given[_FILE], Targets)
    if file.version != _VERSION:
        raise Failure(f"Not supported version field value {file.version}")
    for item in file.partitions:
        if len(item.log_dirs) not in (0, len(item.replicas)):
            raise Failure(
                f"Size of replicas list {item.replicas} is different from size of log dirs list "
                f"[{', '.join(item.log_dirs)}] for partition {name(item)}"
            )
    return file.partitions


def check_targets(wanted: Sequence[Targeted]) -> None:
    """Check the targets of a file.

    Raises:
        Failure: there are none, or one is invalid.
    """
    if not wanted:
        raise Failure("Partition reassignment list cannot be empty")
    if not all(item.replicas for item in wanted):
        raise Failure("Partition replica list cannot be empty")
    if duplicates := repeated(map(name, wanted)):
        raise Failure(f"Partition reassignment contains duplicate topic partitions: {','.join(duplicates)}")
    duplicate_brokers = {name(item): repeated(item.replicas) for item in wanted}
    if any(duplicate_brokers.values()):
        entries = ". ".join(
            f"{partition} contains multiple entries for {','.join(map(str, brokers))}"
            for partition, brokers in duplicate_brokers.items()
            if brokers
        )
        raise Failure(f"Partition replica lists may not contain duplicate entries: {entries}")
    for item in wanted:
        if {*item.log_dirs} - {_ANY}:
            raise Failure(f"kactl does not move replicas between log directories: write {_ANY!r} for {name(item)}")


def topics_and_brokers(given: Mapping[str, Any]) -> tuple[list[str], list[int]]:
    """Returns the topics to move and the target brokers.

    Raises:
        Failure: a list is invalid or has duplicates.
    """
    brokers = [number(text) for text in given["broker_list"].split(",")]
    if duplicate_brokers := repeated(brokers):
        raise Failure(f"Broker list contains duplicate entries: {duplicate_brokers}")
    topics = [item.topic for item in _read(given[_TOPICS], TopicsFile).topics]
    if duplicate_topics := repeated(topics):
        raise Failure(f"List of topics to reassign contains duplicate entries: [{', '.join(duplicate_topics)}]")
    return topics, brokers


def file_content(partitions: Iterable[Targeted]) -> str:
    """Returns targets in the file format of Kafka's tool."""
    content = [
        {
            "topic": item.topic,
            "partition": item.partition,
            "replicas": item.replicas,
            "log_dirs": [_ANY] * len(item.replicas),
        }
        for item in sorted(partitions, key=lambda target: (target.topic, target.partition))
    ]
    return msgspec.json.encode({"version": _VERSION, "partitions": content}).decode()


def name(target: Targeted | ReassignmentTarget) -> str:
    """Returns a name such as orders-0."""
    return f"{target.topic}-{target.partition}"


def _read(path: str, kind: type[_File]) -> _File:
    try:
        content = content_of(path)
    except OSError:
        raise Failure(f"Unable to read file {path}") from None
    return decoded(path, content, kind)


def _flag(option: str) -> str:
    return option.replace("_", "-")
