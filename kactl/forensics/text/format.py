r"""One line that is known: how it is recognised, what it says, and who writes it since when.

A pattern is a regular expression over the whole message, prefix in brackets and layout taken away, in which groups are
called by the columns they fill. Some groups are so common that they have a short form:

    {TP}              topic-0; a topic may itself end in a dash and a number
    {leader:int}      a number, perhaps negative
    {isr:ids}         1,2,3 or 1, 2, 3, or nothing
    {to_state:word}   letters
    {reason:rest}     anything, up to where the pattern goes on
    {STATE}           a partition's state as requests carry it

Where two groups may fill one column, the second is called `isr__2`.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from kactl.forensics.event_types import EventType, Role
from kactl.forensics.events import SCHEMA

Version = tuple[int, int]
# The oldest and the newest whose lines are known; the last one that runs with ZooKeeper.
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
_PLACE: Final = re.compile(r"\{(\w+):(\w+)\}")
_SHORT: Final = {
    "{TP}": rf"(?P<topic>{_NAME})-(?P<partition>\d+)",
    "{OLD_TP}": rf"\[(?P<topic>{_NAME}),(?P<partition>\d+)\]",
    # Before 2.4 without brackets and topic. The epoch in it is of the controller that wrote the state, not the sender.
    "{STATE}": r"\w*PartitionState\((?:topicName='[^']*', partitionIndex=\d+, )?controllerEpoch=-?\d+, "
    r"leader={leader:int}, leaderEpoch={leader_epoch:int}, isr=\[?{isr:ids}\]?, "
    r"(?:zkVersion|partitionEpoch)={partition_epoch:int}, replicas=\[?{replicas:ids}\]?"
    r"(?:, addingReplicas=\[{adding:ids}\], removingReplicas=\[{removing:ids}\])?"
    r"(?:, isNew={is_new:bool})?(?:, leaderRecoveryState={recovery:word})?(?:, offlineReplicas=\[?[\d, ]*\]?)?\)",
}
_SPECIAL: Final = frozenset(r"\()[]{}?*+|.^$")


class Format(NamedTuple):
    """See the module.

    Attributes:
        fills: column -> the groups, by number, of which the first that took part fills it.
        says: columns that are the same for every such line.
        head: the first word of the message; None if it varies.
        by_prefix: whether the prefix must name the partition, as in `[Partition t-0 broker=1]`.
        since, until: the versions that write it.
        raised: the version from which on it is written at INFO, and no longer at TRACE; None if that never changed.
    """

    id: str
    type: EventType
    role: Role
    pattern: "re.Pattern[bytes]"
    fills: dict[str, tuple[int, ...]]
    says: Mapping[str, object]
    head: bytes | None
    by_prefix: bool
    since: Version
    until: Version
    raised: Version | None


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
    **says: object,
) -> Format:
    """A format, from its pattern. Groups and `says` name columns; whoever misspells one hears of it at import."""
    expression = re.compile(expand(pattern).encode("ascii"), re.DOTALL)
    fills: dict[str, tuple[int, ...]] = {}
    for group, number in expression.groupindex.items():
        column = group.split("__")[0]
        fills[column] = (*fills.get(column, ()), number)
    says = {column: value for column, value in says.items() if value is not None}
    unknown = {*fills, *says} - set(SCHEMA.names)
    if unknown:
        raise ValueError(f"{id} fills {', '.join(sorted(unknown))}, and there are no such columns")
    return Format(id, type, role, expression, fills, says, _head(pattern), by_prefix, since, until, raised)


def expand(pattern: str) -> str:
    """A pattern, its short forms written out."""
    for short, long in _SHORT.items():
        pattern = pattern.replace(short, long)
    return _PLACE.sub(lambda place: f"(?P<{place[1]}>{_KINDS[place[2]]})", pattern)


def _head(pattern: str) -> bytes | None:
    word = pattern.split(" ")[0].replace(r"\.", "")
    return None if _SPECIAL & set(word) else word.encode("ascii")
