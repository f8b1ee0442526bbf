"""The command `kactl` and what stands below it."""

import os
from typing import Any

import click

from .broker import broker
from .compat.group import compat
from .config import config
from .controller import controller
from .doctor import doctor
from .elect import elect
from .exits import Exit, Failure
from .explain import explain
from .forensics import forensics
from .get import get
from .reassign import reassign
from .report import report
from .settings import Settings, options
from .sql import sql
from .status import status
from .timeline import timeline
from .topic import topic
from .up import up
from .watch import watch
from .whatif import whatif


class Root(click.Group):
    """Prints errors in the form that was asked for, and knows a few signs of the world outside."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Failure as failure:
            if ctx.ensure_object(Settings).output in ("json", "jsonl"):
                failure.show_json()
                ctx.exit(failure.code)
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order in which they are needed


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        click.echo(f"kactl {metadata.version('kactl')}")
        ctx.exit(Exit.DONE)


@click.group(
    cls=Root,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 done, 1 failed, 2 usage, 3 server unreachable, 4 unhealthy (status), 6 not the controller, a "
    "stale epoch or version, or not confirmed.",
)
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Show the version.")
@options
def kactl(settings: Settings) -> None:
    """A cluster controller with Kafka's semantics: run one, and ask one.

    Begin with `kactl up --demo`.
    """
    if "NO_COLOR" in os.environ:
        click.get_current_context().color = False


for command in (report, timeline, sql, whatif):
    forensics.add_command(command)
for command in (
    up,
    status,
    controller,
    topic,
    get,
    explain,
    elect,
    reassign,
    broker,
    watch,
    forensics,
    doctor,
    config,
    compat,
):
    kactl.add_command(command)
