r"""Format of a known log line: its pattern, the columns it fills, its writer, and the versions that write it.

A pattern is a regular expression that matches a whole message, without its layout and its prefix in brackets. Groups
have the names of the columns that they fill. Common groups have a short form:

    {TP}              topic-0; a topic may itself end in a dash and a number
    {leader:int}      a number, which may be negative
    {isr:ids}         1,2,3 or 1, 2, 3, or nothing
    {to_state:word}   letters
    {reason:rest}     any text up to the rest of the pattern
    {STATE}           a partition's state as requests contain it
    {CODES}           the beginning of a response, up to its error: the first code that is not 0

If two groups fill one column, the second has the name `isr__2`.

The modules in `formats` list their formats as text:

    [broker since=2.6]                          the writer of the formats below, and options of all of them
    {FROM}                                      a short form in this text only
        from controller {controller:int}
    B2 received request=LEADER_AND_ISR          id, type, options, and constants
        Handling LeaderAndIsr request correlationId {correlation_id:int} {FROM} for
        {count:int} partitions

A pattern may be broken at any blank, and elsewhere after a backslash. The options are `since`, `until`, `raised` and
`by_prefix`; see `Format`.
"""

import re
import shlex
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from kactl.forensics.event_types import EventType, Role
from kactl.forensics.events import SCHEMA

Version = tuple[int, int]
# The oldest and the newest version with known lines, and the last one with ZooKeeper.
FIRST: Final[Version] = (0, 8)
LAST: Final[Version] = (4, 4)
ZOOKEEPER_LAST: Final[Version] = (3, 9)

_NAME: Final = r"[A-Za-z0-9._-]+"
_KINDS: Final = {
    "int": r"-?\d+",
    "ids": r"[\d, ]*",
    "word": r"\w+",
    "rest": r".*",
    "name": _NAME,
    "bool": r"true|false",
    "id": r"[\w-]+",
}
_GROUP: Final = re.compile(r"\{(\w+):(\w+)\}")
_SHORT: Final = {
    "{TP}": rf"(?P<topic>{_NAME})-(?P<partition>\d+)",
    "{OLD_TP}": rf"\[(?P<topic>{_NAME}),(?P<partition>\d+)\]",
    # Before 2.4 without brackets and topic. The epoch is of the controller that wrote the state, not of the sender.
    "{STATE}": r"\w*PartitionState\((?:topicName='[^']*', partitionIndex=\d+, )?controllerEpoch=-?\d+, "
    r"leader={leader:int}, leaderEpoch={leader_epoch:int}{CONFLUENT}, isr=\[?{isr:ids}\]?, "
    r"(?:zkVersion|partitionEpoch)={partition_epoch:int}, replicas=\[?{replicas:ids}\]?"
    r"(?:, addingReplicas=\[{adding:ids}\], removingReplicas=\[{removing:ids}\])?"
    r"(?:, isNew={is_new:bool})?(?:, leaderRecoveryState={recovery:word})?"
    r"(?:, offlineReplicas=\[?[\d, ]*\]?)?{CONFLUENT}\)",
    # Fields of Confluent Server.
    "{CONFLUENT}": r"(?:, (?:isUncleanLeader|linkedLeaderEpoch|confluent\w+|clusterLink\w*)=[^,)]*)*",
    "{CODES}": r"(?:.*?error_?[cC]ode=(?P<error>-?[1-9]\d*)[,)}\] ]|.*?error_?[cC]ode=(?P<error__2>0)[,)}\] ])?",
}
_SPECIAL: Final = frozenset(r"\()[]{}?*+|.^$")
# A heading and the indented lines below it; lines that begin with a number sign are comments.
_ENTRY: Final = re.compile(r"^(?![#\s])(.+)\n((?: +.+\n)*)", re.MULTILINE)


class Format(NamedTuple):
    """Format of a line.

    Attributes:
        fills: column -> numbers of the groups that may fill it; the first group that matched does.
        constants: columns that have the same value for every such line.
        head: first word of the message; None if it varies.
        by_prefix: whether the prefix must name the partition, as in `[Partition t-0 broker=1]`.
        since, until: the first and the last version that writes the line.
        raised: the version that raised the line from TRACE to INFO; None if its level never changed.
    """

    id: str
    type: EventType
    role: Role
    pattern: "re.Pattern[bytes]"
    fills: dict[str, tuple[int, ...]]
    constants: Mapping[str, object]
    head: bytes | None
    by_prefix: bool
    since: Version
    until: Version
    raised: Version | None


def read_formats(text: str) -> tuple[Format, ...]:
    """Returns the formats in a text; see the module.

    Raises:
        ValueError: an entry is invalid.
    """
    role, common = Role.CONTROLLER, dict[str, Any]()
    short: dict[str, str] = {}
    formats = []
    for heading, body in _ENTRY.findall(text):
        pattern = re.sub(r"\n +", " ", re.sub(r"\\\n +", "", body.strip()))
        for name, content in short.items():
            pattern = pattern.replace(name, content)
        if heading.startswith("{"):
            short[heading] = pattern
        elif heading.startswith("["):
            writer, *options = heading.strip("[]").split()
            role, common = Role(writer), _options(options)
        else:
            id, type, *options = shlex.split(heading)
            formats.append(line(id, EventType(type), pattern, role=role, **common | _options(options)))
    return tuple(formats)


def _options(words: list[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for word in words:
        name, _, value = word.partition("=")
        if name in ("since", "until", "raised"):
            major, minor = value.split(".")
            options[name] = (int(major), int(minor))
        elif name == "by_prefix":
            options[name] = True
        else:
            # Not by a scalar of Arrow, which would import pandas, before a command could reject its input.
            kind = SCHEMA.field(name).type
            options[name] = value if pa.types.is_string(kind) else msgspec.convert(value, int | bool, strict=False)
    return options


def line(
    id: str,
    type: EventType,
    pattern: str,
    *,
    role: Role,
    since: Version = (1, 0),
    until: Version = LAST,
    raised: Version | None = None,
    by_prefix: bool = False,
    **constants: object,
) -> Format:
    """Returns the format with this pattern.

    Raises:
        ValueError: a group or a constant does not have the name of a column.
    """
    expression = re.compile(expand(pattern).encode("ascii"), re.DOTALL)
    fills: dict[str, tuple[int, ...]] = {}
    for group, number in expression.groupindex.items():
        column = group.split("__")[0]
        fills[column] = (*fills.get(column, ()), number)
    unknown = {*fills, *constants} - set(SCHEMA.names)
    if unknown:
        raise ValueError(f"format {id} fills columns that do not exist: {', '.join(sorted(unknown))}")
    return Format(id, type, role, expression, fills, constants, _head(pattern), by_prefix, since, until, raised)


def expand(pattern: str) -> str:
    """Returns a pattern with its short forms replaced by regular expressions."""
    for short, long in _SHORT.items():
        pattern = pattern.replace(short, long)
    return _GROUP.sub(lambda group: f"(?P<{group[1]}>{_KINDS[group[2]]})", pattern)


def _head(pattern: str) -> bytes | None:
    word = pattern.split(" ")[0].replace(r"\.", "")
    return None if _SPECIAL & set(word) else word.encode("ascii")
