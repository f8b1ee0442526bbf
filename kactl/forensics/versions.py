"""Which versions of Kafka write what was seen."""

from collections.abc import Iterable
from typing import Final

from .text.dispatch import BY_ID
from .text.format import FIRST, LAST, Version

# Marks between format and level, as in P1@INFO.
AT: Final = "@"


def guess(seen: Iterable[str]) -> str | None:
    """The versions that write all of some formats, each with the level it was written at.

    Returns:
        "2.6-3.1", "4.1+", "1.0"; "mixed" if no version writes all of them, as in a file over an upgrade; None if
        nothing that was seen tells.
    """
    since, until, told = FIRST, LAST, False
    for each in seen:
        name, _, level = each.partition(AT)
        found = BY_ID.get(name)
        if found is None:
            continue
        told = True
        since, until = max(since, found.since), min(until, found.until)
        if found.raised is not None and level == "INFO":
            since = max(since, found.raised)
        if found.raised is not None and level == "TRACE":
            until = min(until, _before(found.raised))
    if not told:
        return None
    if since > until:
        return "mixed"
    if since == until:
        return _written(since)
    return f"{_written(since)}+" if until == LAST else f"{_written(since)}-{_written(until)}"


def _before(version: Version) -> Version:
    major, minor = version
    return (major, minor - 1)


def _written(version: Version) -> str:
    return f"{version[0]}.{version[1]}"
