"""Options common to all commands, accepted before and after the command name. The later one takes precedence."""

import functools
import math
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import click

from . import context_file, output
from .api_client import Api
from .exits import Exit, Failure

DEFAULT_SERVER: Final = "http://127.0.0.1:8080"
DEFAULT_TIMEOUT_S: Final = 30.0
# One day; longer than any operation takes. Sockets reject timeouts of more than some centuries.
TIMEOUT_S_MAX: Final = 86_400.0
# Output formats of most commands; the others list theirs.
FORMS: Final = ("table", "json", "jsonl", "yaml")
# 'kafka' is supported by `topic describe` only: the lines of kafka-topics.sh; 'csv' by `forensics sql` only.
OUTPUTS: Final = (*FORMS, "csv", "kafka")

_Command = TypeVar("_Command", bound=Callable[..., Any])


def command_for(url: str) -> str:
    """Returns the command that reaches a server: "kactl" for the default server."""
    return "kactl" if url == DEFAULT_SERVER else f"kactl --server {url}"


class Settings:
    """Values of the common options, from the command line and the environment."""

    def __init__(self) -> None:
        self._server = ""
        self.context: str | None = None
        self.token_file: str | None = None
        self.ca_file: str | None = None
        self.output = ""  # the default of the command
        self.forms: tuple[str, ...] = OUTPUTS
        self.timeout_s = DEFAULT_TIMEOUT_S
        self.quiet = False
        self.verbose = False
        self.reason = ""  # of a change of this host's files

    def update(self, values: dict[str, Any]) -> None:
        """Set the options of a command line; None means not given."""
        for name, value in values.items():
            if value is not None:
                setattr(self, name, value)

    @property
    def server(self) -> str:
        """The server: `--server`, `--context`, `KACTL_SERVER`, `KACTL_CONTEXT`, the current context, the default."""
        return self._place[0]

    @server.setter
    def server(self, server: str) -> None:
        self._server = server

    @property
    def _place(self) -> tuple[str, str]:
        """The server, and the name of the context that it was taken from; empty if it was not."""
        if self._server and self.context:
            raise Failure("specify either --server or --context, not both", Exit.USAGE)
        server = self._server or ("" if self.context else os.environ.get("KACTL_SERVER", ""))
        if server:
            return server, ""
        contexts = context_file.load()
        name = self.context or os.environ.get("KACTL_CONTEXT") or contexts.current
        return (contexts.named(name).server, name) if name else (DEFAULT_SERVER, "")

    @property
    def api(self) -> Api:
        server, context = self._place
        return Api(
            server,
            context=context,
            timeout_s=self.timeout_s,
            verbose=self.verbose,
            on_standby=self.note,
            token_file=self.token_file,
            ca_file=self.ca_file,
        )

    def note(self, text: str) -> None:
        """Print a remark to stderr, unless --quiet is given."""
        if not self.quiet:
            output.echo(text, err=True)

    def finish(self, change: str, changed: str = "", *, dry_run: bool) -> None:
        """Print the result of a change that no server records, and record it in the system's log with its reason.

        Args:
            change: such as "revoke x", without secrets.
            changed: such as "Revoked x."; empty if the command has printed its result.
        """
        if dry_run:
            self.note(f"Would {change}. Nothing was changed.")
            return
        import syslog

        syslog.openlog("kactl", syslog.LOG_PID, syslog.LOG_AUTHPRIV)  # as useradd and sudo
        syslog.syslog(output.harmless(f"user {os.getuid()}: {change}: {self.reason}"))
        if changed:
            self.note(changed)

    def form(self) -> str:
        """Returns the output format.

        Raises:
            Failure: USAGE; the option precedes the name of a command that does not support the format.
        """
        if self.output and self.output not in self.forms:
            raise Failure(f"-o: {_no_form(self.output, self.forms)}", Exit.USAGE)
        return self.output or self.forms[0]

    def printed(self, document: Any, lines: Iterable[Any] | None = None) -> bool:
        """Print a result as `output.print_data`, if the output format is one of programs. Returns whether it is."""
        form = self.form()
        if form in output.DATA:
            output.print_data(form, document, lines)
        return form in output.DATA


class _Form(click.Choice[str]):
    """Output format of a command. The error message lists the supported ones."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value not in self.choices:
            self.fail(_no_form(value, self.choices), param, ctx)
        return value


def _no_form(form: str, forms: Iterable[str]) -> str:
    return f"this command does not support the output format {form!r}: choose one of {', '.join(forms)}"


def _server(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is None or "://" in value:
        return value
    return f"http://{value}"


def _timeout(_: click.Context, __: click.Parameter, value: float | None) -> float | None:
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is not a number of seconds")
    return value


def _context_names(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in sorted(context_file.load().contexts) if name.startswith(incomplete)]


_OPTIONS: Final = {
    "server": click.option(
        "--server", metavar="URL", callback=_server, help=f"Server to use.  [current context, or {DEFAULT_SERVER}]"
    ),
    "context": click.option(
        "--context", metavar="NAME", shell_complete=_context_names, help="Context to use; see `kactl context`."
    ),
    "token_file": click.option(
        "--token-file", metavar="FILE", help="File with a token for the server.  [that of your own server]"
    ),
    "ca_file": click.option(
        "--ca-file", metavar="FILE", help="Authority of the server's certificate.  [those of the system]"
    ),
    "timeout_s": click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0, min_open=True, max=TIMEOUT_S_MAX),
        callback=_timeout,
        metavar="SECONDS",
        help=f"Maximum time until a response.  [{DEFAULT_TIMEOUT_S:g}]",
    ),
    "quiet": click.option("-q", "--quiet", is_flag=True, default=None, help="Print data only, no remarks."),
    "verbose": click.option("-v", "--verbose", is_flag=True, default=None, help="Print details to stderr."),
}
_LOCAL: Final = ("quiet", "verbose")


def _why(_: click.Context, __: click.Parameter, value: str | None) -> str:
    return value if value is not None and value.strip() else own_reason()


def own_reason() -> str:
    """Returns the reason that the server records if the user gives none: program, user and host."""
    import getpass
    import socket
    from pathlib import PurePath

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a number without a name
        user = f"user {os.getuid()}"
    return f"no reason given: {PurePath(sys.argv[0]).name} of {user} on {socket.gethostname()}"


# Accepted by the commands for which the server demands a reason.
own_reason_option: Final = click.option(
    "--reason", metavar="TEXT", callback=_why, help="Reason, for the audit trail.  [who runs the command, and where]"
)
# Accepted by every other command that changes the cluster.
reason_option: Final = click.option(
    "--reason", metavar="TEXT", default="", help="Reason, recorded in the events and the log of the server."
)


dry_run_option: Final = click.option(
    "--dry-run", is_flag=True, help="Show the effect or check the request; change nothing."
)
yes_option: Final = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
# Scripts give --yes to every command that changes something, whether or not it asks.
never_asks: Final = click.option("--yes", is_flag=True, expose_value=False, help="Accepted; this command does not ask.")


def _keep_reason(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    ctx.ensure_object(Settings).reason = _why(ctx, parameter, value)


_recorded_reason: Final = click.option(
    "--reason", metavar="TEXT", callback=_keep_reason, expose_value=False,
    help="Reason, for the system's log.  [who runs the command, and where]",
)  # fmt: skip


def changes_host(command: _Command) -> _Command:
    """Add the options of changes to a command that uses no server; its function ends with `Settings.finish`."""
    return dry_run_option(never_asks(_recorded_reason(command)))


def given_file(ctx: click.Context, argument: str | None, option: str | None) -> str | None:
    """Returns the file of a command that takes it as an argument or by `-f`."""
    if argument is not None and option is not None:
        raise click.UsageError(f"specify the file once: as {argument!r} or by -f", ctx)
    return argument if option is None else option


def options(command: _Command) -> _Command:
    """Add the common options to a command; its function receives the `Settings` as first argument."""
    return with_options(FORMS)(command)


def local_options(command: _Command) -> _Command:
    """Add the common options to a command that uses no server."""
    return with_options(FORMS, server=False)(command)


def with_options(forms: tuple[str, ...], *, server: bool = True) -> Callable[[_Command], _Command]:
    """Add the common options to a command with other output formats.

    Args:
        forms: the supported formats, the default first; without any, the command has no `-o`.
        server: whether the command uses a server.
    """
    chosen = dict(_OPTIONS) if server else {name: _OPTIONS[name] for name in _LOCAL}
    if forms:
        form = click.option("-o", "--output", type=_Form(forms), help=f"Output format.  [{forms[0]}]")
        chosen = {**{name: chosen[name] for name in chosen if name in ("server", "context")}, "output": form, **chosen}

    def decorate(command: _Command) -> _Command:
        @click.pass_context
        @functools.wraps(command)
        def run(ctx: click.Context, /, *args: Any, **kwargs: Any) -> Any:
            settings = ctx.ensure_object(Settings)
            settings.update({name: kwargs.pop(name) for name in chosen})
            if forms:
                settings.forms = forms
                settings.form()
            return command(settings, *args, **kwargs)

        decorated: Any = run
        for name in reversed(chosen):
            decorated = chosen[name](decorated)
        result: _Command = decorated
        return result

    return decorate
