"""Output of `kafka-topics.sh --describe`, and files with settings of topics.

    Topic: orders  TopicId: d9..  PartitionCount: 2  ReplicationFactor: 3  Configs: min.insync.replicas=2
      Topic: orders  Partition: 0  Leader: 1  Replicas: 1,2,3  Isr: 1,2  Elr: 3  LastKnownElr:
      Topic: orders  Partition: 1  Leader: none  Replicas: 2,3,1  Isr: 2

The tool prints tabs, which may have become spaces. Up to 2.3, some colons are not followed by a space; before 2.2, no
leader is -1. Lines that begin differently, such as warnings of the tool, are ignored.

A file of settings has lines of the same tool, of which only those with `Configs` matter, and lines such as

    orders min.insync.replicas=2,weight=12.5
    audit unclean.leader.election.enable=true

The weight is the load of one partition in any unit, for example records or bytes per second. Other settings are
ignored.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pyarrow as pa

from kactl.decide.whatif.assumptions import TopicFacts
from kactl.forensics.whatif.tables import BadSnapshot

from .builder import Builder

_BEGIN: Final = "Topic:"
_PARTITION: Final = re.compile(
    r"Topic:\s*(?P<topic>[\w.-]+)\s+Partition:\s*(?P<partition>\d+)\s+Leader:\s*(?P<leader>none|N/A|-?\d+)"
    r"\s+Replicas:\s*(?P<replicas>[\d,]*)\s+Isr:[ \t]*(?P<isr>[\d,]*)(?P<rest>\s.*)?",
    re.ASCII,
)
_ELR: Final = re.compile(r"\sElr:[ \t]*([\d,]*)", re.ASCII)
_HEADER: Final = re.compile(
    r"Topic:\s*(?P<topic>[\w.-]+)\s.*PartitionCount:.*?(?:\sConfigs:\s*(?P<configs>.*))?", re.ASCII
)
_MIN_ISR: Final = re.compile(r"(?:^|[,\s])min\.insync\.replicas=(\d+)", re.ASCII)
_UNCLEAN: Final = re.compile(r"(?:^|[,\s])unclean\.leader\.election\.enable=(true|false)", re.ASCII)
_PARTITION_FORM: Final = "Topic: orders  Partition: 0  Leader: 1  Replicas: 1,2,3  Isr: 1,2"

_SETTINGS: Final = re.compile(r"(?P<topic>[\w.-]+)[\s:]+(?P<configs>[\w.]+=\S*)", re.ASCII)
_WEIGHT: Final = re.compile(r"(?:^|,)weight=([^,\s]*)", re.ASCII)
_SETTINGS_FORM: Final = (
    "write `orders min.insync.replicas=2,weight=12.5`, or use the output of `kafka-topics.sh --describe`"
)


class BadTopics(BadSnapshot):
    """A file with settings of topics cannot be read."""


def is_described(line: str) -> bool:
    """Return whether a line begins like the tool's lines."""
    return line.lstrip().startswith(_BEGIN)


def read(lines: Iterable[str], source: str) -> pa.Table:
    """Read the partitions in the tool's output.

    Raises:
        BadSnapshot: a line begins like the tool's lines but has another format, or there is no partition.
    """
    partitions = Builder(source, "line")
    min_isr: dict[str, int] = {}
    unclean: dict[str, bool] = {}
    for number, line in enumerate(lines, 1):
        if not is_described(line):
            continue
        text = line.strip()
        if (match := _PARTITION.fullmatch(text)) is not None:
            _add(partitions, number, match)
        elif (match := _HEADER.fullmatch(text)) is not None:
            facts = _facts_of(match["configs"] or "")
            if facts.min_isr is not None:
                min_isr[match["topic"]] = facts.min_isr
            if facts.unclean is not None:
                unclean[match["topic"]] = facts.unclean
        else:
            raise BadSnapshot(
                f"{source}, line {number}",
                f"{text[:160]!r} is no line of the tool; a partition is `{_PARTITION_FORM}`",
            )
    if not len(partitions):
        raise BadSnapshot(source, f"it has no partition; a line of one is `{_PARTITION_FORM}`")
    return partitions.table(min_isr=min_isr, unclean=unclean)


def _facts_of(configs: str) -> TopicFacts:
    """Return the settings in text of the form KEY=VALUE,KEY=VALUE."""
    min_isr, unclean = _MIN_ISR.search(configs), _UNCLEAN.search(configs)
    return TopicFacts(min_isr=int(min_isr[1]) if min_isr else None, unclean=unclean[1] == "true" if unclean else None)


def _add(partitions: Builder, number: int, match: re.Match[str]) -> None:
    elr = _ELR.search(match["rest"] or "")
    partitions.add(
        number,
        match["topic"],
        int(match["partition"]),
        leader=-1 if match["leader"] in ("none", "N/A") else int(match["leader"]),
        replicas=_ids(match["replicas"]),
        isr=_ids(match["isr"]),
        elr=_ids(elr[1]) if elr else None,
    )


@functools.lru_cache(maxsize=65_536)  # there are far fewer lists of brokers than partitions
def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


def read_settings(path: str) -> dict[str, TopicFacts]:
    """Read a file with settings of topics.

    Raises:
        BadTopics: the file cannot be read, a line has another format, or no line has settings.
    """
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise BadTopics("--topics", f"{path} cannot be read ({error.strerror}); name another file") from None
    topics: dict[str, TopicFacts] = {}
    for number, line in enumerate(text.splitlines(), 1):
        content = line.partition("#")[0].strip()
        if is_described(content):
            match = _HEADER.fullmatch(content)
            if match is not None and "PartitionCount" in content:
                topics[match["topic"]] = _facts_of(match["configs"] or "")
        elif content:
            topic, facts = _settings(content, f"{path}, line {number}")
            topics[topic] = facts
    if not topics:
        raise BadTopics(path, f"it has no settings of a topic; {_SETTINGS_FORM}")
    return topics


def _settings(line: str, position: str) -> tuple[str, TopicFacts]:
    match = _SETTINGS.fullmatch(line)
    if match is None:
        raise BadTopics(position, f"{line[:160]!r} has no settings of a topic; {_SETTINGS_FORM}")
    facts, weight = _facts_of(match["configs"]), _WEIGHT.search(match["configs"])
    if weight is None:
        return match["topic"], facts
    try:
        value = float(weight[1])
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise BadTopics(position, f"{weight[1]!r} is not a weight: use a number from 0 on")
    return match["topic"], dataclasses.replace(facts, weight=value)
