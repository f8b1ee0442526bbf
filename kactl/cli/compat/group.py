"""The group `kactl compat`, and the names under which its commands stand in for Kafka's programs."""

from pathlib import PurePath
from typing import Final

import click

from .leader_election import leader_election
from .reassign_partitions import reassign_partitions
from .topics import topics


@click.group()
def compat() -> None:
    """Take the flags of Kafka's own tools, and print their lines.

    A link to `kactl` that is called kafka-topics.sh does the same.
    """


STANDS: Final = (topics, leader_election, reassign_partitions)
for command in STANDS:
    compat.add_command(command)


def by_program_name(program: str) -> click.Command | None:
    """The command that stands in for a program, such as `/opt/bin/kafka-topics.sh`; None if none does."""
    name = PurePath(program).name.removesuffix(".sh")
    for each in STANDS:
        if name == f"kafka-{each.name}":
            return each
    return None
