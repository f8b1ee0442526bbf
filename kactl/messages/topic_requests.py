"""Requests that ensure topics, from the arguments of the method of controllers and participants."""

from collections.abc import Iterable, Mapping
from typing import Literal, cast, get_args

from kactl.errors import BadRequest

from . import arguments
from .admin import TopicEnsureRequested

# What a caller waits for: a stored topic that the controller knows; leaders and brokers that have acknowledged their
# requests; or leaders that serve, too. "acknowledged" is an earlier name of "led".
WaitFor = Literal["stored", "led", "ready", "acknowledged"]


def checked_wait(wait: str) -> WaitFor:
    """Returns what a caller waits for.

    Raises:
        BadRequest: `wait` is no WaitFor.
    """
    if wait not in get_args(WaitFor):
        raise BadRequest("wait", f"{wait!r} is unknown: give 'stored', 'led' or 'ready'")
    return cast(WaitFor, "led" if wait == "acknowledged" else wait)


def ensure_request(
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    assignment: Mapping[int, Iterable[int]] | None,
    config: Mapping[str, str] | None,
    wait: WaitFor,
) -> TopicEnsureRequested:
    """Returns the request of `ensure_topic`, with the defaults that do not depend on the cluster."""
    wait = checked_wait(wait)
    if assignment is None and partitions is None:
        partitions = 1
    return TopicEnsureRequested(
        arguments.text(topic, "topic"),
        None if partitions is None else arguments.whole(partitions, "partitions"),
        None if replication_factor is None else arguments.whole(replication_factor, "replication_factor"),
        None if assignment is None else arguments.assignments(assignment),
        {} if config is None else arguments.settings(config),
        wait == "ready",
        wait != "stored",
    )
