"""The command `kactl` and its subcommands, which are imported on use.

`kactl --help` and `kactl status` load no other command: each costs about 10 ms to import, and `forensics` more.
"""

import importlib
import os
from collections.abc import Iterator, MutableMapping
from typing import Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from . import output
from .common_options import OUTPUTS, Settings, with_options
from .exits import Exit, Failure, harmless_errors


class Entry(NamedTuple):
    """Definition of a command for the list of commands.

    Attributes:
        members: modules whose commands of the same name belong to the group.
    """

    module: str
    help: str
    members: tuple[str, ...] = ()


# In the order of first use. The help texts are repeated here; a test compares them.
ENTRIES: Final = {
    "up": Entry(".up", "Run a cluster in one process."),
    "status": Entry(".status", "Health checks; the exit code states the result."),
    "controller": Entry(".controller", "Run the controller of real Kafka brokers, or inspect one."),
    "topic": Entry(".topic", "Create, change, delete, list and describe topics."),
    "get": Entry(".get", "Show partitions, shards, brokers, topics, elections, events and the controller."),
    "describe": Entry(".describe", "Describe one object in detail, with causes."),
    "explain": Entry(".explain", "Explain the state of a partition or topic."),
    "elect": Entry(".elect", "Elect leaders: the preferred ones, or unclean ones."),
    "reassign": Entry(".reassign", "Move partitions to other replicas."),
    "replica": Entry(".replica", "Reset the handlers of replicas on participants."),
    "broker": Entry(".broker", "Drain brokers; kill and restart those of `kactl up`."),
    "whatif": Entry(".live_whatif", "Simulate failures in the running cluster."),
    "watch": Entry(".watch", "Show events as they occur."),
    "forensics": Entry(
        ".forensics",
        "Investigate outages in the logs of a Kafka cluster.",
        ("report", "timeline", "sql", "whatif", "explain_layout"),
    ),
    "dashboard": Entry(".dashboard", "Open the dashboard in a browser, logged in."),
    "context": Entry(".context", "Name servers, and choose the one that commands use."),
    "token": Entry(".token", "Create, list, revoke and rotate tokens of the admin API."),
    "kafka-user": Entry(".kafka_user", "Add, list and remove users of kactl's Kafka listeners."),
    "store": Entry(".store", "Back up and restore the store."),
    "audit": Entry(".audit", "Check the files of the audit trail."),
    "pki": Entry(".pki", "Make certificates for controllers and participants."),
    "monitoring": Entry(".monitoring", "Write a dashboard for Grafana and alert rules for Prometheus."),
    "doctor": Entry(".doctor", "Check the requirements of kactl."),
    "zk-secure": Entry(".zk_secure", "Protect the nodes of a cluster in ZooKeeper from other clients."),
    "completion": Entry(".completion", "Print a script that completes commands in a shell."),
    "config": Entry(".config", "Check a configuration, or show its effective values or its schema."),
    "compat": Entry(".compat.tools", "Replace Kafka's command-line tools: same options, same output."),
}


class Commands(MutableMapping[str, click.Command]):
    """Commands by name; a command is imported when it is looked up."""

    def __init__(self) -> None:
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            self._loaded[name] = _load(name, ENTRIES[name])
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*ENTRIES, *self._loaded)))

    def __len__(self) -> int:
        return len({*ENTRIES, *self._loaded})

    def __contains__(self, name: object) -> bool:
        return name in ENTRIES or name in self._loaded


def _load(name: str, entry: Entry) -> click.Command:
    command: click.Command = getattr(importlib.import_module(entry.module, __package__), name.replace("-", "_"))
    if isinstance(command, click.Group):
        for member in entry.members:
            command.add_command(getattr(importlib.import_module(f".{member}", __package__), member))
    return command


class Root(click.Group):
    """Prints errors in the requested format, and lists commands without importing them."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.commands = Commands()

    def make_context(self, *arguments: Any, **named: Any) -> click.Context:
        with harmless_errors():
            return super().make_context(*arguments, **named)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with harmless_errors():
                return super().invoke(ctx)
        except Failure as failure:
            if ctx.ensure_object(Settings).output in output.DATA:
                failure.show_json()
                ctx.exit(failure.code)
            raise

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of commands without importing them, and the common options."""
        names = [
            CompletionItem(name, help=entry.help) for name, entry in ENTRIES.items() if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in ENTRIES.items()])


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        click.echo(f"kactl {metadata.version('kactl')}")
        ctx.exit(Exit.DONE)


@click.group(
    cls=Root,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 done, 1 failed, 2 usage, 3 server unreachable, 4 a check fails (status), 5 a check "
    "warns (status --warn-as-error), 6 not the controller, a stale epoch or version, or not confirmed.",
)
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Show the version.")
@with_options(OUTPUTS)
def kactl(settings: Settings) -> None:
    """A cluster controller with Kafka's semantics: run it, query it, and change the cluster.

    Begin with `kactl up --demo`.
    """
    if "NO_COLOR" in os.environ:
        click.get_current_context().color = False
