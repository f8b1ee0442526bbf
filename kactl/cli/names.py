"""Names of files and folders, as typed."""

from typing import Any, Final

import click


class _Name(click.ParamType):
    """A name of something. An empty one is that of a variable that nobody has set, and not of the place one is in."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not text.strip():
            self.fail("it is empty: write a name; if a variable stands here, see that it is set", param, ctx)
        if "\0" in text:
            self.fail("no name has a zero byte in it", param, ctx)
        return text


NAME: Final = _Name()
