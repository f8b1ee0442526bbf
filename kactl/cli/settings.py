"""The options that every command takes, before or behind its name; the one nearer to the command wins."""

import functools
import math
import os
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import click

from .client import Api
from .exits import Exit, Failure

DEFAULT_SERVER: Final = "http://127.0.0.1:8080"
DEFAULT_TIMEOUT_S: Final = 30.0
# A day: who waits for longer does not wait for an answer. Sockets take no more than some centuries.
TIMEOUT_S_MAX: Final = 86_400.0
# Forms of output that nearly every command has; others name theirs.
FORMS: Final = ("table", "json", "jsonl")
# 'kafka' is for `topic describe` alone: the lines of kafka-topics.sh; 'csv' for `forensics sql`.
OUTPUTS: Final = (*FORMS, "csv", "kafka")

_Command = TypeVar("_Command", bound=Callable[..., Any])


def command_for(url: str) -> str:
    """What to type to reach a server; "kactl" where it is the one that is asked by default."""
    return "kactl" if url == DEFAULT_SERVER else f"kactl --server {url}"


class Settings:
    """What was said on the command line and in the environment, about all commands."""

    def __init__(self) -> None:
        self.server = os.environ.get("KACTL_SERVER") or DEFAULT_SERVER
        self.output = "table"
        self.forms: tuple[str, ...] = OUTPUTS
        self.timeout_s = DEFAULT_TIMEOUT_S
        self.quiet = False
        self.verbose = False

    def take(self, given: dict[str, Any]) -> None:
        """Keep what was said; None was not."""
        for name, value in given.items():
            if value is not None:
                setattr(self, name, value)

    @property
    def api(self) -> Api:
        return Api(self.server, timeout_s=self.timeout_s, verbose=self.verbose, on_standby=self.note)

    def note(self, text: str) -> None:
        """Something that is good to know, and no data."""
        if not self.quiet:
            click.echo(text, err=True)

    def form(self) -> str:
        """The form of output that was asked for, which the command has.

        Raises:
            Failure: USAGE; it stood before the name of a command that does not have it.
        """
        if self.output not in self.forms:
            raise Failure(f"-o: {_no_form(self.output, self.forms)}", Exit.USAGE)
        return self.output


class _Form(click.Choice[str]):
    """One of the forms of output of a command; a refusal lists these."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value not in self.choices:
            self.fail(_no_form(value, self.choices), param, ctx)
        return value


def _no_form(asked: str, forms: Iterable[str]) -> str:
    return f"this command has no output {asked!r}; it has {', '.join(forms)}"


def _server(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is None or "://" in value:
        return value
    return f"http://{value}"


def _timeout(_: click.Context, __: click.Parameter, value: float | None) -> float | None:
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is no number of seconds")
    return value


_OPTIONS: Final = {
    "server": click.option("--server", metavar="URL", callback=_server, help=f"The server to ask.  [{DEFAULT_SERVER}]"),
    "timeout_s": click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0, min_open=True, max=TIMEOUT_S_MAX),
        callback=_timeout,
        metavar="SECONDS",
        help=f"How long an answer may take.  [{DEFAULT_TIMEOUT_S:g}]",
    ),
    "quiet": click.option("-q", "--quiet", is_flag=True, default=None, help="Data only, no remarks."),
    "verbose": click.option("-v", "--verbose", is_flag=True, default=None, help="Say more of what is done."),
}
_LOCAL: Final = ("quiet", "verbose")

# Of every command that changes something.
reason_option: Final = click.option(
    "--reason", metavar="TEXT", default="", help="Why; kept in the events and the log of the server."
)


def options(command: _Command) -> _Command:
    """Give a command the common options, and its function the `Settings` as first argument."""
    return with_options(FORMS)(command)


def local_options(command: _Command) -> _Command:
    """The same for a command that asks no server, and so has no use for what says which one."""
    return with_options(FORMS, server=False)(command)


def with_options(forms: tuple[str, ...], *, server: bool = True) -> Callable[[_Command], _Command]:
    """The same for a command with other forms of output; without any it has no `-o`.

    Args:
        forms: the first is the one for people.
        server: whether the command asks a server.
    """
    given = dict(_OPTIONS) if server else {name: _OPTIONS[name] for name in _LOCAL}
    if forms:
        form = click.option("-o", "--output", type=_Form(forms), help="The form of the output.  [table]")
        given = {**{name: given[name] for name in given if name == "server"}, "output": form, **given}

    def decorate(command: _Command) -> _Command:
        @click.pass_context
        @functools.wraps(command)
        def run(ctx: click.Context, /, *args: Any, **kwargs: Any) -> Any:
            settings = ctx.ensure_object(Settings)
            settings.take({name: kwargs.pop(name) for name in given})
            if forms:
                settings.forms = forms
                settings.form()
            return command(settings, *args, **kwargs)

        decorated: Any = run
        for name in reversed(given):
            decorated = given[name](decorated)
        kept: _Command = decorated
        return kept

    return decorate
