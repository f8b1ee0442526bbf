"""Job `audit`: rules that no correct cluster breaks, and their violations.

An incomplete log violates no rule. A first occurrence is accepted as it is. A controller that takes over rebuilds all
states without logging them, so only epochs are compared across a takeover. Lines between which others may be missing
are not compared.
"""

from typing import Final

from pyspark.sql import DataFrame

from kactl.forensics.columns import columns, names_of
from kactl.forensics.jobs.expressions import stacked
from kactl.forensics.jobs.job import Job

from .rules import assigned, controllers_at_brokers, epochs_rise, in_sync, one_controller, one_leader, requests_in_order
from .transitions import chains, legal

COLUMNS: Final = columns(
    """
    rule              text  the violated rule; see `audit.RULES`
    topic
    partition
    life
    broker            id    the replica's broker, or the one that wrote the line
    at                time  [first] when
    controller        id    the controller
    controller_epoch
    expected          text  the correct value
    found             text  the logged value
    file_id           id    the file of the line that shows it
    offset            long  [at byte] offset in that file
    """
)
RULES: Final = {
    "partition-move": "a partition moved between states between which no version allows a move",
    "replica-move": "a replica moved between states between which its version allows no move",
    "partition-chain": "a partition left a state that it was not in, by the same controller's line before",
    "replica-chain": "a replica left a state that it was not in, by the same controller's line before",
    "leader-epoch": "a partition's leader epoch went back, or did not rise with the election of a leader",
    "partition-epoch": "the version of a partition's stored state went back, or did not rise with the leader epoch",
    "one-leader": "two leaders were logged with the same leader epoch of a partition",
    "leader-in-isr": "a leader was not in its own ISR",
    "isr-assigned": "a broker stayed in the ISR of a partition that it is not assigned to",
    "request-order": "a broker took a role of an older leader epoch than it had had",
    "controller-epoch": "a broker accepted a controller of an older epoch than one that it had accepted before",
    "one-controller": "two controllers acted with the same epoch",
}


def audit(timed: DataFrame, files: DataFrame) -> DataFrame:
    """Return one row for each violation of a rule, with the first line that shows it.

    Args:
        files: versions that wrote the lines, on which the legal transitions depend.
    """
    violations = (
        legal(timed, files),
        chains(timed),
        epochs_rise(timed),
        one_leader(timed),
        in_sync(timed),
        assigned(timed),
        requests_in_order(timed),
        controllers_at_brokers(timed),
        one_controller(timed),
    )
    return stacked(*violations).select(*names_of(COLUMNS))


JOB: Final = Job(
    "audit",
    "Violations: transitions that no version allows, epochs that decrease, leaders that are not in sync.",
    COLUMNS,
    audit,
)
