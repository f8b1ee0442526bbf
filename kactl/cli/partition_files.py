"""Partitions on the command line and in files, in the formats of Kafka's tools.

A file of targets is {"version": 1, "partitions": [{"topic": "a", "partition": 0, "replicas": [1, 2]}]}, one of names
the same without replicas, one of topics {"version": 1, "topics": [{"topic": "a"}]}. Fields that only Kafka's tools use
are ignored.
"""

import sys
from pathlib import Path
from typing import Final, TypeVar

import click
import msgspec

from kactl.admin.schema import PartitionName, ReassignmentTarget
from kactl.model import TopicPartition

from .exits import Exit, Failure


class Named(msgspec.Struct, frozen=True):
    """One partition of a file."""

    topic: str
    partition: int


class Targeted(Named, frozen=True):
    """One partition with its target replicas."""

    replicas: list[int] = []
    log_dirs: list[str] = []


class Targets(msgspec.Struct, frozen=True):
    """A file of targets."""

    partitions: list[Targeted]
    version: int = 1


class NamesFile(msgspec.Struct, frozen=True):
    """A file of names."""

    partitions: list[Named]


class TopicNamed(msgspec.Struct, frozen=True):
    """One topic of a file."""

    topic: str


class TopicsFile(msgspec.Struct, frozen=True):
    """A file of topics."""

    topics: list[TopicNamed]
    version: int = 1


STDIN: Final = "-"
# Kafka's tools know no other version, either.
VERSION: Final = 1
_REMEDY: Final = "`kactl reassign plan --out` writes the expected format"
# A million partitions at some 60 bytes each. The limit also ends the reading of an endless device.
FILE_BYTES_MAX: Final = 64 * 1024 * 1024

_File = TypeVar("_File", Targets, NamesFile, TopicsFile)


def content_of(path: str) -> bytes:
    """Returns the content of a file or pipe; `-` is stdin. A pipe can be read once.

    Raises:
        OSError: it cannot be read.
        Failure: USAGE; it is larger than FILE_BYTES_MAX.
    """
    if path == STDIN:
        content = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
    else:
        with Path(path).open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise Failure(f"{path}: larger than {FILE_BYTES_MAX} bytes; split it into several files", Exit.USAGE)
    return content


def read(path: str, kind: type[_File]) -> _File:
    """Returns the decoded content of a file or pipe.

    Raises:
        Failure: USAGE; it cannot be read, or has another format.
    """
    try:
        content = content_of(path)
    except OSError as error:
        raise Failure(f"{path}: cannot be read ({error.strerror}); choose another file", Exit.USAGE) from None
    file = decoded(path, content, kind)
    version = getattr(file, "version", VERSION)
    if version != VERSION:
        raise Failure(f"{path}: version {version} is unknown; {_REMEDY}, version {VERSION}", Exit.USAGE)
    return file


def decoded(path: str, content: bytes, kind: type[_File]) -> _File:
    """Returns the decoded content. Raises like `read`."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = str(error) if content.strip() else "is empty"
        raise Failure(f"{path}: {reason}; {_REMEDY}", Exit.USAGE) from None


def parsed(text: str, option: str = "-p") -> PartitionName:
    """Returns the partition of a name such as orders-0.

    Raises:
        BadParameter: the name is invalid.
    """
    try:
        name = TopicPartition.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None
    return PartitionName(topic=name.topic, partition=name.partition)


def parsed_target(text: str, option: str = "-p") -> ReassignmentTarget:
    """Returns the target of a name with replicas, such as orders-0:1,2,3.

    Raises:
        BadParameter: the text is invalid.
    """
    name, colon, replicas = text.rpartition(":")
    if not colon:
        raise click.BadParameter(f"{text!r} is not a target: write orders-0:1,2,3", param_hint=option)
    partition = parsed(name, option)
    return ReassignmentTarget(topic=partition.topic, partition=partition.partition, replicas=ids(replicas, option))


def ids(text: str, option: str) -> list[int]:
    """Returns the broker ids of a list such as 1,2,3.

    Raises:
        BadParameter: the text is invalid.
    """
    parts = text.split(",")
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise click.BadParameter(f"{text!r} is not a list of broker ids: write 1,2,3", param_hint=option)
    return [int(part) for part in parts]


def names_of(file: NamesFile) -> list[PartitionName]:
    """Returns the partitions of a file."""
    return [PartitionName(topic=item.topic, partition=item.partition) for item in file.partitions]


def targets_of(file: Targets) -> list[ReassignmentTarget]:
    """Returns the targets of a file."""
    return [
        ReassignmentTarget(topic=item.topic, partition=item.partition, replicas=item.replicas)
        for item in file.partitions
    ]
