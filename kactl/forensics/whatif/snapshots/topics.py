"""What is said of topics beside the snapshot: min.insync.replicas, unclean elections, and what they weigh.

    orders min.insync.replicas=2,weight=12.5
    audit unclean.leader.election.enable=true
    Topic: payments  PartitionCount: 6  ReplicationFactor: 3  Configs: min.insync.replicas=2

The last is what `kafka-topics.sh --describe` prints first of a topic, so all of its output will do. The weight is that
of one partition, in any unit: records or bytes per second, say; other overrides are passed over.
"""

import dataclasses
import math
import re
from pathlib import Path
from typing import Final

from kactl.forensics.whatif.partitions import BadSnapshot, TopicFacts

from .describe import facts_of, header_of, is_described

_LINE: Final = re.compile(r"(?P<topic>[\w.-]+)[\s:]+(?P<configs>[\w.]+=\S*)", re.ASCII)
_WEIGHT: Final = re.compile(r"(?:^|,)weight=([^,\s]*)", re.ASCII)
_FORM: Final = "write `orders min.insync.replicas=2,weight=12.5`, or give what `kafka-topics.sh --describe` prints"


class BadTopics(BadSnapshot):
    """Lines about topics that cannot be understood."""


def read(path: str) -> dict[str, TopicFacts]:
    """What a file says, by topic.

    Raises:
        BadTopics: it cannot be read, a line is of another form, or no line says anything.
    """
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise BadTopics("--topics", f"{path} cannot be read ({error.strerror}); name another file") from None
    found: dict[str, TopicFacts] = {}
    for number, line in enumerate(text.splitlines(), 1):
        told = line.partition("#")[0].strip()
        if is_described(told):
            header = header_of(told)
            if header is not None:
                found[header[0]] = facts_of(header[1])
        elif told:
            topic, facts = _parsed(told, f"{path}, line {number}")
            found[topic] = facts
    if not found:
        raise BadTopics(path, f"it says nothing of any topic; {_FORM}")
    return found


def _parsed(line: str, where: str) -> tuple[str, TopicFacts]:
    match = _LINE.fullmatch(line)
    if match is None:
        raise BadTopics(where, f"{line[:160]!r} is no line about a topic; {_FORM}")
    facts, weight = facts_of(match["configs"]), _WEIGHT.search(match["configs"])
    if weight is None:
        return match["topic"], facts
    try:
        value = float(weight[1])
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise BadTopics(where, f"{weight[1]!r} is no weight: it is a number from 0 on")
    return match["topic"], dataclasses.replace(facts, weight=value)
