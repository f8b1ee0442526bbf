"""Types of option values: names of files and folders, memory sizes, and Spark masters."""

import re
from typing import Any, Final

import click


class _Name(click.types.StringParamType):
    """Name of a file or folder. An empty name, which comes from an unset variable, is rejected.

    Args:
        may_be_bytes: whether names that are not UTF-8 are accepted. Among many log files, one such name is skipped with
            a warning.
    """

    def __init__(self, *, may_be_bytes: bool = False) -> None:
        self._may_be_bytes = may_be_bytes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = super().convert(value, param, ctx)
        if not text.strip():
            self.fail("the name is empty: write a name; if it is a variable, check that it is set", param, ctx)
        if "\0" in text:
            self.fail("the name contains a zero byte", param, ctx)
        if not self._may_be_bytes and any("\ud800" <= sign <= "\udfff" for sign in text):
            self.fail("the name is not valid UTF-8: choose another name, or rename the file", param, ctx)
        return text


# Spark rejects less, and Java rejects an invalid size, each with an error of its own.
_MEMORY_MIN_MB: Final = 512
_MB: Final = {"m": 1, "g": 1024, "t": 1024**2}
_MASTER: Final = re.compile(r"local|local\[(\*|[1-9]\d*)(,\d+)?\]|local-cluster\[.+\]|yarn|(spark|k8s)://.+", re.ASCII)


class _Size(click.types.StringParamType):
    """Memory size: `512m`, `2g`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = str(super().convert(value, param, ctx)).strip().lower()
        match = re.fullmatch(r"(\d{1,9})([mgt])b?", text, re.ASCII)
        if match is None:
            self.fail(f"{value!r} is not a size: write 512m, 2g or 1t", param, ctx)
        if int(match[1]) * _MB[match[2]] < _MEMORY_MIN_MB:
            self.fail(f"{value} is less than Spark needs to start: use {_MEMORY_MIN_MB}m or more", param, ctx)
        return match[1] + match[2]


class _Master(click.types.StringParamType):
    """Spark master URL."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = str(super().convert(value, param, ctx)).strip()
        if _MASTER.fullmatch(text) is None:
            self.fail(
                f"{value!r} is not a Spark master: write local[*], local[2], yarn, spark://HOST:PORT or k8s://URL",
                param,
                ctx,
            )
        return text


NAME: Final = _Name()
NAME_OF_LOG: Final = _Name(may_be_bytes=True)
SIZE: Final = _Size()
MASTER: Final = _Master()
