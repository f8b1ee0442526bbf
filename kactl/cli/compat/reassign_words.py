"""What kafka-reassign-partitions.sh looks at before it asks anybody: options and files, and what it writes.

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
# What each action needs, and what it goes with.
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
# The one version of files that there is, and what stands in them for any directory of a broker.
_VERSION: Final = 1
_ANY: Final = "any"


def action_of(given: Mapping[str, Any]) -> str:
    """The one action that is asked for, with all that it needs and nothing that it does not take.

    Raises:
        KafkaUsage.
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
        raise KafkaUsage("kactl does not limit replication: leave the throttle out, or set it with kafka-configs")
    return action


def targets(given: Mapping[str, Any]) -> list[Targeted]:
    """What goes where, as the file says.

    Raises:
        Failure.
    """
    file = _read(given[_FILE], Targets)
    if file.version != _VERSION:
        raise Failure(f"Not supported version field value {file.version}")
    for each in file.partitions:
        if len(each.log_dirs) not in (0, len(each.replicas)):
            raise Failure(
                f"Size of replicas list {each.replicas} is different from size of log dirs list "
                f"[{', '.join(each.log_dirs)}] for partition {name(each)}"
            )
    return file.partitions


def check_targets(wanted: Sequence[Targeted]) -> None:
    """See that what a file asks for can be asked for.

    Raises:
        Failure.
    """
    if not wanted:
        raise Failure("Partition reassignment list cannot be empty")
    if not all(each.replicas for each in wanted):
        raise Failure("Partition replica list cannot be empty")
    if twice := repeated(map(name, wanted)):
        raise Failure(f"Partition reassignment contains duplicate topic partitions: {','.join(twice)}")
    twofold = {name(each): repeated(each.replicas) for each in wanted}
    if any(twofold.values()):
        told = ". ".join(
            f"{partition} contains multiple entries for {','.join(map(str, brokers))}"
            for partition, brokers in twofold.items()
            if brokers
        )
        raise Failure(f"Partition replica lists may not contain duplicate entries: {told}")
    for each in wanted:
        if {*each.log_dirs} - {_ANY}:
            raise Failure(f"kactl moves nothing between a broker's directories: say {_ANY!r} for those of {name(each)}")


def topics_and_brokers(given: Mapping[str, Any]) -> tuple[list[str], list[int]]:
    """Which topics are to be moved onto which brokers.

    Raises:
        Failure.
    """
    brokers = [number(text) for text in given["broker_list"].split(",")]
    if twice := repeated(brokers):
        raise Failure(f"Broker list contains duplicate entries: {twice}")
    topics = [each.topic for each in _read(given[_TOPICS], TopicsFile).topics]
    if twofold := repeated(topics):
        raise Failure(f"List of topics to reassign contains duplicate entries: [{', '.join(twofold)}]")
    return topics, brokers


def written(partitions: Iterable[Targeted]) -> str:
    """A file, as Kafka's tool writes it."""
    content = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "replicas": each.replicas,
            "log_dirs": [_ANY] * len(each.replicas),
        }
        for each in sorted(partitions, key=lambda one: (one.topic, one.partition))
    ]
    return msgspec.json.encode({"version": _VERSION, "partitions": content}).decode()


def name(each: Targeted | ReassignmentTarget) -> str:
    """Such as orders-0."""
    return f"{each.topic}-{each.partition}"


def _read(path: str, kind: type[_File]) -> _File:
    try:
        content = content_of(path)
    except OSError:
        raise Failure(f"Unable to read file {path}") from None
    return decoded(path, content, kind)


def _flag(option: str) -> str:
    return option.replace("_", "-")
