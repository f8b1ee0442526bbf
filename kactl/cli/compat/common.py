"""Common parts of the replacements for Kafka's tools: server address, exit codes and error messages.

`--bootstrap-server` is the address of kactl's API instead of a broker. `KACTL_SERVER` and `--server` before the command
take precedence, so that scripts need no change. Failures end with exit code 1, as those of Kafka's tools do. An invalid
command line is reported on stderr, beginning with the message of Kafka's tool.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import IO, Any, Final, TypeVar

import click

from kactl.cli import output
from kactl.cli.api_client import Api
from kactl.cli.common_options import DEFAULT_SERVER, Settings
from kactl.cli.exits import Failure
from kactl.runtime.escaping import harmless_lines

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Item = TypeVar("_Item")

FAILED: Final = 1
# Topics that brokers create for internal use.
INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state"})

_OPTIONS: Final = (
    click.option("--bootstrap-server", metavar="HOST:PORT", help="Address of kactl's API, unless KACTL_SERVER is set."),
    click.option(
        "--command-config", "--admin.config", "command_config", metavar="FILE", help="Ignored, with a warning."
    ),
    click.option("--zookeeper", metavar="URLS", help="Ignored, with a warning."),
)


class KafkaUsage(click.UsageError):
    """The command line is invalid, as it is for Kafka's tool."""

    exit_code = FAILED

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(harmless_lines(self.format_message()), file=file, err=file is None)
        if self.ctx is not None:
            click.echo(self.ctx.get_usage(), file=file, err=file is None)


class KafkaTool(click.Command):
    """Replacement for one of Kafka's tools. The exit code of every failure is 1."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise KafkaUsage(error.format_message(), ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Failure as failure:
            output.echo(message_of(failure), err=True)
        except click.UsageError as error:
            raise KafkaUsage(error.format_message(), ctx) from None
        ctx.exit(FAILED)


def kafka_options(command: _Command) -> _Command:
    """Add the options common to Kafka's tools."""
    decorated: Any = command
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    result: _Command = decorated
    return result


def api(bootstrap_server: str | None, zookeeper: str | None, command_config: str | None) -> Api:
    """Returns a client of the server that the options select."""
    settings = click.get_current_context().ensure_object(Settings)
    if zookeeper is not None:
        output.echo("warning: --zookeeper is ignored: the server of kactl has the address of the store", err=True)
    if command_config is not None:
        output.echo("warning: --command-config is ignored: kactl uses none of its settings", err=True)
    is_set = settings.server != DEFAULT_SERVER or "KACTL_SERVER" in os.environ
    if bootstrap_server is not None and not is_set:
        first = bootstrap_server.split(",")[0]
        return Api(first if "://" in first else f"http://{first}", timeout_s=settings.timeout_s)
    return settings.api


def fail(line: str) -> None:
    """Print a line to stdout and exit with code 1, as Kafka's tools do."""
    output.echo(line)
    click.get_current_context().exit(FAILED)


def message_of(failure: Failure) -> str:
    """Returns the server's error message, or the reason why the server could not be reached."""
    return failure.message if failure.problem is None else failure.problem.detail


def number(text: str) -> int:
    """Returns the integer in a text.

    Raises:
        Failure: the text is not an integer; the message is that of Kafka's tools.
    """
    if re.fullmatch(r"[+-]?[0-9]{1,10}", text) is None:
        raise Failure(f'For input string: "{text}"')
    return int(text)


def repeated(items: Iterable[_Item]) -> list[_Item]:
    """Returns items that occur more than once, in the order of first occurrence."""
    return [item for item, count in Counter(items).items() if count > 1]


def chosen(names: Iterable[str], pattern: str | None, *, exclude_internal: bool = False) -> list[str]:
    """Returns the topics that match a pattern of Kafka's tools: a regular expression in which a comma means "or".

    Raises:
        Failure: the pattern is invalid.
    """
    candidates = sorted(name for name in names if not (exclude_internal and name in INTERNAL))
    if pattern is None:
        return candidates
    text = pattern.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        expression = re.compile(text)
    except re.error:
        raise Failure(f"{text} is an invalid regex.") from None
    return [name for name in candidates if expression.fullmatch(name)]
