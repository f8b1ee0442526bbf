"""Kafka versions inferred from the formats of log lines."""

from collections.abc import Iterable
from typing import Final

from .text.dispatch import BY_ID
from .text.format import FIRST, LAST, Version

# Separator of format and level, as in P1@INFO.
AT: Final = "@"


def guess(seen: Iterable[str]) -> str | None:
    """Infer the versions that write all given formats, each with its level.

    Returns:
        "2.6-3.1", "4.1+" or "1.0"; "mixed" if no version writes all of them, as in a file that spans an upgrade; None
        if no known format is given.
    """
    since, until, is_known = FIRST, LAST, False
    for key in seen:
        name, _, level = key.partition(AT)
        form = BY_ID.get(name)
        if form is None:
            continue
        is_known = True
        since, until = max(since, form.since), min(until, form.until)
        if form.raised is not None and level == "INFO":
            since = max(since, form.raised)
        if form.raised is not None and level == "TRACE":
            until = min(until, _before(form.raised))
    if not is_known:
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
