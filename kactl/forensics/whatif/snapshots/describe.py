"""What `kafka-topics.sh --describe` prints, of any version.

    Topic: orders  TopicId: d9..  PartitionCount: 2  ReplicationFactor: 3  Configs: min.insync.replicas=2
      Topic: orders  Partition: 0  Leader: 1  Replicas: 1,2,3  Isr: 1,2  Elr: 3  LastKnownElr:
      Topic: orders  Partition: 1  Leader: none  Replicas: 2,3,1  Isr: 2

Tabs stand where blanks do here, but may have become blanks on their way. Up to 2.3 there is no blank behind some
colons; before 2.2 nobody is -1. What does not begin like these lines, as warnings of the tool, is passed over.
"""

import functools
import re
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from kactl.forensics.whatif.partitions import BadSnapshot, TopicFacts

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
_FORM: Final = "Topic: orders  Partition: 0  Leader: 1  Replicas: 1,2,3  Isr: 1,2"


def is_described(line: str) -> bool:
    """Whether a line begins as those of the tool do."""
    return line.lstrip().startswith(_BEGIN)


def read(lines: Iterable[str], source: str) -> pa.Table:
    """The partitions of such lines.

    Raises:
        BadSnapshot: a line that begins like one of them goes on otherwise, or there is no partition.
    """
    found = Builder(source, "line")
    min_isr: dict[str, int] = {}
    unclean: dict[str, bool] = {}
    for number, line in enumerate(lines, 1):
        if not is_described(line):
            continue
        text = line.strip()
        if (match := _PARTITION.fullmatch(text)) is not None:
            _add(found, number, match)
        elif (match := _HEADER.fullmatch(text)) is not None:
            facts = facts_of(match["configs"] or "")
            if facts.min_isr is not None:
                min_isr[match["topic"]] = facts.min_isr
            if facts.unclean is not None:
                unclean[match["topic"]] = facts.unclean
        else:
            raise BadSnapshot(
                f"{source}, line {number}", f"{text[:160]!r} is not what the tool prints; a partition is `{_FORM}`"
            )
    if not len(found):
        raise BadSnapshot(source, f"there is no partition in it; a line of one is `{_FORM}`")
    return found.table(min_isr=min_isr, unclean=unclean)


def facts_of(configs: str) -> TopicFacts:
    """What a topic's overrides say, written as KEY=VALUE,KEY=VALUE."""
    min_isr, unclean = _MIN_ISR.search(configs), _UNCLEAN.search(configs)
    return TopicFacts(min_isr=int(min_isr[1]) if min_isr else None, unclean=unclean[1] == "true" if unclean else None)


def header_of(line: str) -> tuple[str, str] | None:
    """The topic and its overrides, if a line is the first one of a topic."""
    match = _HEADER.fullmatch(line.strip())
    return None if match is None or "PartitionCount" not in line else (match["topic"], match["configs"] or "")


def _add(found: Builder, number: int, match: re.Match[str]) -> None:
    elr = _ELR.search(match["rest"] or "")
    found.add(
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
