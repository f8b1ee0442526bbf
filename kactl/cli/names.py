"""Names of files and folders, as typed, and of what Spark runs on."""

import re
from typing import Any, Final

import click


class _Name(click.types.StringParamType):
    """A name of something. An empty one is that of a variable that nobody has set, and not of the place one is in.

    Args:
        may_be_bytes: whether it may be no text, as the name of a file may: of many that are named one is then missed.
    """

    def __init__(self, *, may_be_bytes: bool = False) -> None:
        self._may_be_bytes = may_be_bytes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = super().convert(value, param, ctx)
        if not text.strip():
            self.fail("it is empty: write a name; if a variable stands here, see that it is set", param, ctx)
        if "\0" in text:
            self.fail("no name has a zero byte in it", param, ctx)
        if not self._may_be_bytes and any("\ud800" <= sign <= "\udfff" for sign in text):
            self.fail("it is not in UTF-8: name something else, or rename it", param, ctx)
        return text


# Of less Spark says that it is too little, and of what is no size at all Java does, each in its own way.
_MEMORY_MIN_MB: Final = 512
_MB: Final = {"m": 1, "g": 1024, "t": 1024**2}
_MASTER: Final = re.compile(r"local|local\[(\*|[1-9]\d*)(,\d+)?\]|local-cluster\[.+\]|yarn|(spark|k8s)://.+", re.ASCII)


class _Size(click.types.StringParamType):
    """How much memory: `512m`, `2g`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = str(super().convert(value, param, ctx)).strip().lower()
        found = re.fullmatch(r"(\d{1,9})([mgt])b?", text, re.ASCII)
        if found is None:
            self.fail(f"{value!r} is no size: write 512m, 2g or 1t", param, ctx)
        if int(found[1]) * _MB[found[2]] < _MEMORY_MIN_MB:
            self.fail(f"{value} is less than Spark starts with: give it {_MEMORY_MIN_MB}m or more", param, ctx)
        return found[1] + found[2]


class _Master(click.types.StringParamType):
    """Where Spark runs, by its own names."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = str(super().convert(value, param, ctx)).strip()
        if _MASTER.fullmatch(text) is None:
            self.fail(f"{value!r} is none: write local[*], local[2], yarn, spark://HOST:PORT or k8s://URL", param, ctx)
        return text


NAME: Final = _Name()
NAME_OF_LOG: Final = _Name(may_be_bytes=True)
SIZE: Final = _Size()
MASTER: Final = _Master()
