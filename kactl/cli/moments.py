"""Moments on the command line: event numbers, times, and times ago."""

import datetime
import re
import time
from typing import Any, Final, NamedTuple

import click

from kactl.admin.schema import EventPage

from .api_client import Api

_AGO: Final = re.compile(r"([0-9]{1,9})(s|m|h|d)")
_UNIT_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Since(NamedTuple):
    """A beginning: after the event of a number, or at a time in ms since 1970."""

    seq: int | None
    time_ms: int | None = None

    def after(self, api: Api) -> int:
        """Returns the number of the last event before the beginning, as far as the server still has it."""
        if self.seq is not None:
            return self.seq
        page = api.get("/v1/events", EventPage, {"since": self.time_ms, "limit": 1})
        return page.items[0].seq - 1 if page.items else page.as_of.seq


class _SinceType(click.ParamType[Since]):
    """`0`, an event number; `10m`; `2026-11-23T14:05:00`, local or with an offset."""

    name = "since"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, Since):
            return value
        text = str(value).strip()
        if text.isascii() and text.isdecimal() and len(text) <= 18:
            return Since(int(text))
        ago = _AGO.fullmatch(text)
        if ago is not None:
            return Since(None, max(0, round((time.time() - int(ago[1]) * _UNIT_S[ago[2]]) * 1000)))
        try:
            moment = datetime.datetime.fromisoformat(text)
            return Since(None, round((moment if moment.tzinfo is not None else moment.astimezone()).timestamp() * 1000))
        except (ValueError, OverflowError):
            self.fail(f"{text!r} is not an event number, a time as 2026-11-23T14:05:00, or one as 10m", param, ctx)


SINCE: Final = _SinceType()
