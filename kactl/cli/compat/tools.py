"""The group `kactl compat`, and its commands by the names of Kafka's programs."""

from pathlib import PurePath
from typing import Final

import click

from .kafka_leader_election import leader_election
from .kafka_reassign_partitions import reassign_partitions
from .kafka_topics import topics


@click.group()
def compat() -> None:
    """Replace Kafka's command-line tools: same options, same output.

    A symbolic link to `kactl` with the name kafka-topics.sh behaves in the same way.
    """


TOOLS: Final = (topics, leader_election, reassign_partitions)
for command in TOOLS:
    compat.add_command(command)


def by_program_name(program: str) -> click.Command | None:
    """Returns the command that replaces a program, such as `/opt/bin/kafka-topics.sh`; None if there is none."""
    name = PurePath(program).name.removesuffix(".sh")
    for tool in TOOLS:
        if name == f"kafka-{tool.name}":
            return tool
    return None
