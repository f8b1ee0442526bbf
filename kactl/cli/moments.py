"""Moments on the command line: event numbers, times, and times ago."""

import datetime
import re
import time
from typing import Any, Final, NamedTuple

import click

from kactl.admin.schema import EventPage
from kactl.model import UNTIL_MS_MAX

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
            return Since(None, _time_ms(text))
        except (ValueError, OverflowError):
            self.fail(f"{text!r} is not an event number, a time as 2026-11-23T14:05:00, or one as 10m", param, ctx)


SINCE: Final = _SinceType()


class _UntilType(click.ParamType[int]):
    """`2h`; `2026-11-23T14:05:00`, local or with an offset. The result is in ms since 1970."""

    name = "until"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, int):
            return value
        text, now_ms = str(value).strip(), round(time.time() * 1000)
        ahead = _AGO.fullmatch(text)
        try:
            until_ms = now_ms + int(ahead[1]) * _UNIT_S[ahead[2]] * 1000 if ahead else _time_ms(text)
        except (ValueError, OverflowError):
            self.fail(f"{text!r} is not a duration as 90m or 2h, or a time as 2026-11-23T14:05:00", param, ctx)
        if until_ms <= now_ms:
            self.fail(f"{text} has passed: name a time in the future", param, ctx)
        if until_ms > UNTIL_MS_MAX:
            self.fail(f"{text} is later than the year 9999", param, ctx)
        return until_ms


def _time_ms(text: str) -> int:
    moment = datetime.datetime.fromisoformat(text)
    return round((moment if moment.tzinfo is not None else moment.astimezone()).timestamp() * 1000)


UNTIL: Final = _UntilType()
