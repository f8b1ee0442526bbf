"""Requests that ensure topics, from the arguments of the method of controllers and participants."""

from collections.abc import Iterable, Mapping
from typing import Literal, cast, get_args

from kactl.model import STANDBY, TopicKind
from kactl.model.errors import BadRequest

from . import arguments
from .admin import EnsureTopic

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


def overrides(config: Mapping[str, str] | None, kind: TopicKind, standby: int | None) -> dict[str, str]:
    """Returns the overrides of a topic of a kind, with its number of standbys.

    Raises:
        BadRequest: of an unknown kind, or one without standbys.
    """
    if kind not in get_args(TopicKind):
        raise BadRequest("kind", f"{kind!r} is unknown: give 'replicated' or 'ownership'")
    result = {} if config is None else arguments.settings(config)
    if kind != "ownership" and (standby is not None or STANDBY in result):
        field = "config" if standby is None else "standby"
        raise BadRequest(field, "only topics of kind='ownership' have standbys: give replication_factor")
    if standby is None:
        return result
    return {**result, STANDBY: str(arguments.whole(standby, "standby"))}


def ensure_request(
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    assignment: Mapping[int, Iterable[int]] | None,
    config: Mapping[str, str] | None,
    wait: WaitFor,
    kind: TopicKind,
    standby: int | None,
) -> EnsureTopic:
    """Returns the request of `ensure_topic`, with the defaults that do not depend on the cluster."""
    wait = checked_wait(wait)
    if assignment is None and partitions is None:
        partitions = 1
    return EnsureTopic(
        arguments.text(topic, "topic"),
        None if partitions is None else arguments.whole(partitions, "partitions"),
        None if replication_factor is None else arguments.whole(replication_factor, "replication_factor"),
        None if assignment is None else arguments.assignments(assignment),
        overrides(config, kind, standby),
        wait == "ready",
        wait != "stored",
        kind=kind,
    )
