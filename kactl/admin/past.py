"""Partitions as they were at an earlier time, from the state-change log."""

import datetime
import re
from typing import Final

import msgspec

from kactl.telemetry.past_states import NotCovered

from . import problem
from .schema import AsOf, PartitionPage, PartitionQuery
from .service import Service
from .views import find_partitions

# Filters that need the settings of that time.
_WITH_SETTINGS: Final = ("under_min_isr", "at_min_isr")
_MS: Final = re.compile(r"[0-9]{1,15}")
_PERIODS_SHOWN: Final = 3


async def partitions_at(service: Service, query: PartitionQuery) -> PartitionPage:
    """Returns one page of the partitions at `query.at`.

    Raises:
        Refused: the time cannot be read, or the log does not cover it; or a filter needs more than the log has.
    """
    assert query.at is not None
    time_ms = read_time(query.at)
    for name in _WITH_SETTINGS:
        if getattr(query, name) is not None:
            raise problem.of_parameter(name, "cannot be combined with at: the log has no settings of topics")
    if service.past is None:
        raise problem.of_parameter(
            "at", "this server keeps no state-change log that can be read back: set [log] folder, and format to json"
        )
    if time_ms > service.controller.clock.now_ms():
        raise problem.of_parameter("at", f"{_shown(time_ms)} is in the future")
    cluster = await service.past.at(time_ms)
    if isinstance(cluster, NotCovered):
        raise problem.of_parameter("at", f"{_shown(time_ms)}: {cluster.reason}; {_covered(cluster)}")
    rows = find_partitions(cluster, query)
    epoch = int(rows.rows.controller_epoch.max(initial=0))
    # The log has no states of replicas.
    items = tuple(msgspec.structs.replace(item, replica_states={}) for item in await rows.infos())
    return PartitionPage(
        items=items,
        matched=rows.matched,
        next_cursor=rows.next_cursor,
        as_of=AsOf(epoch=epoch, seq=service.controller.history.seq),
        at_ms=time_ms,
    )


def read_time(text: str, parameter: str = "at") -> int:
    """Returns the time in ms since 1970 of a text in RFC 3339 with an offset, or in ms.

    Raises:
        Refused: it is neither.
    """
    if _MS.fullmatch(text):
        return int(text)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise problem.of_parameter(
            parameter, f"{text!r} is not a time: write it as 2026-11-23T14:05:00Z, with an offset, or in ms since 1970"
        )
    return round(moment.timestamp() * 1000)


def _shown(time_ms: int) -> str:
    try:
        moment = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _covered(missing: NotCovered) -> str:
    if not missing.covered:
        return "its states begin with the next takeover"
    newest = missing.covered[-_PERIODS_SHOWN:]
    periods = ", ".join(f"{_shown(period.begin_ms)} to {_shown(period.end_ms)}" for period in newest)
    return f"it covers {periods}" + (" and earlier periods" if len(newest) < len(missing.covered) else "")
