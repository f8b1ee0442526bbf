"""What the stand-ins for Kafka's tools have in common: where they ask, and how they fail.

Where Kafka's tool takes the address of a broker these take the server of kactl's API. `KACTL_SERVER` and `--server`
before the command go before it, so that a script can stay as it is. Failures end with exit code 1, as Kafka's do; a
command line that Kafka's tool would refuse is answered on stderr, beginning with the sentence that it would say.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import IO, Any, Final, TypeVar

import click

from kactl.cli.client import Api
from kactl.cli.exits import Failure
from kactl.cli.settings import DEFAULT_SERVER, Settings

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Item = TypeVar("_Item")

FAILED: Final = 1
# Topics that brokers make for themselves.
INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state"})

_OPTIONS: Final = (
    click.option("--bootstrap-server", metavar="HOST:PORT", help="The API of kactl, unless KACTL_SERVER is set."),
    click.option("--command-config", "--admin.config", "command_config", metavar="FILE", help="Passed over."),
    click.option("--zookeeper", metavar="URLS", help="Passed over, with a warning."),
)


class KafkaUsage(click.UsageError):
    """A command line that Kafka's tool would refuse."""

    exit_code = FAILED

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(self.format_message(), file=file, err=file is None)
        if self.ctx is not None:
            click.echo(self.ctx.get_usage(), file=file, err=file is None)


class Stand(click.Command):
    """A stand-in for one of Kafka's tools: whatever fails, the exit code is 1."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise KafkaUsage(error.format_message(), ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Failure as failure:
            click.echo(said(failure), err=True)
        except click.UsageError as error:
            raise KafkaUsage(error.format_message(), ctx) from None
        ctx.exit(FAILED)


def kafka_options(command: _Command) -> _Command:
    """The options that all of Kafka's tools take."""
    decorated: Any = command
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    kept: _Command = decorated
    return kept


def api(bootstrap_server: str | None, zookeeper: str | None, command_config: str | None) -> Api:
    """The server to ask."""
    settings = click.get_current_context().ensure_object(Settings)
    if zookeeper is not None:
        click.echo("warning: --zookeeper is passed over: kactl itself knows where the cluster is kept", err=True)
    if command_config is not None:
        click.echo("warning: --command-config is passed over: there is nothing in it for kactl", err=True)
    elsewhere = settings.server != DEFAULT_SERVER or "KACTL_SERVER" in os.environ
    if bootstrap_server is not None and not elsewhere:
        first = bootstrap_server.split(",")[0]
        return Api(first if "://" in first else f"http://{first}", timeout_s=settings.timeout_s)
    return settings.api


def fail(line: str) -> None:
    """Print a line as Kafka's tool does, and end as it ends."""
    click.echo(line)
    click.get_current_context().exit(FAILED)


def said(failure: Failure) -> str:
    """What is to be told of a failure: the server's words, or those that say why it could not be asked."""
    return failure.message if failure.problem is None else failure.problem.detail


def number(text: str) -> int:
    """A whole number.

    Raises:
        Failure: it is none, in the words of Kafka's tools.
    """
    if re.fullmatch(r"[+-]?[0-9]{1,10}", text) is None:
        raise Failure(f'For input string: "{text}"')
    return int(text)


def repeated(items: Iterable[_Item]) -> list[_Item]:
    """Those that come more than once, in the order in which they first came."""
    return [item for item, times in Counter(items).items() if times > 1]


def chosen(names: Iterable[str], pattern: str | None, *, exclude_internal: bool = False) -> list[str]:
    """The topics that a regular expression names, as Kafka's tools read it: commas stand for "or".

    Raises:
        Failure: it is none.
    """
    kept = sorted(name for name in names if not (exclude_internal and name in INTERNAL))
    if pattern is None:
        return kept
    text = pattern.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        found = re.compile(text)
    except re.error:
        raise Failure(f"{text} is an invalid regex.") from None
    return [name for name in kept if found.fullmatch(name)]
