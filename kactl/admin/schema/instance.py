"""This instance, the controller, and the cluster in numbers."""

from typing import Literal

from .words import Answer, AsOf, Int32, Question, Reason


class Probe(Answer, frozen=True):
    """Whether this instance lives or is ready. `status`: ok, starting, or failing: the store cannot be used."""

    status: str
    detail: str = ""


class ControllerInfo(Answer, frozen=True):
    """This instance, and who is the controller.

    Attributes:
        node_id: of this instance.
        active_id: who holds the controllership as far as this instance knows; null if nobody does.
        ready: this instance is the controller and has taken over wholly.
        epoch: under which this instance acts; 0 if it is not the controller.
        since_ms: since when it does; null if it is not the controller, or it has been for longer than events are kept.
        state, state_number: what it is doing, in Kafka's words and numbers.
        changes: how often this instance was elected since it started.
        queue_size: events that wait.
        participants: ids of the brokers that run in the same process, and can be killed and restarted.
    """

    node_id: int
    cluster: str
    version: str
    is_active: bool
    ready: bool
    active_id: int | None
    epoch: int
    since_ms: int | None
    state: str
    state_number: int
    changes: int
    queue_size: int
    participants: tuple[int, ...]
    as_of: AsOf


class HealthCheck(Answer, frozen=True):
    """One health check.

    Attributes:
        result: `pass`; `warn`: the cluster serves with less reserve; `fail`: partitions do not serve, or something is
            stuck; `unknown`: the figure could not be determined; `skip`: it does not apply to this instance.
        value, limit: in `unit`; null where there is no figure. Limits are those of `[health]` in the configuration.
        names: the first partitions, topics or brokers concerned.
        detail: what is the matter; `remedy`: what to do about it. Empty where nothing is.
    """

    name: str
    result: Literal["pass", "warn", "fail", "unknown", "skip"]
    value: float | None
    limit: float | None
    unit: Literal["count", "ms", "percent"]
    names: tuple[str, ...]
    detail: str
    remedy: str


class ClusterInfo(Answer, frozen=True):
    """The cluster in numbers, and its health checks.

    An instance that stands by answers from its copy of the cluster, and with epoch 0.

    Attributes:
        node_id: of this instance; `is_active`: it is the controller.
        since_ms: since when it is; null if it is not, or events of that time are no longer kept.
        status: the worst result of the checks: `healthy`; `degraded` by a warning or an unknown figure; `unhealthy`.
        checks: always the same, in the same order.
        brokers: that are registered; `brokers_dead` hold replicas and are not registered.
        offline_partitions: in state offline, those of topics that are being deleted left out.
        preferred_imbalance: partitions that are not led by their preferred replica.
    """

    cluster: str
    node_id: int
    controller_id: int | None
    is_active: bool
    epoch: int
    since_ms: int | None
    status: Literal["healthy", "degraded", "unhealthy"]
    checks: tuple[HealthCheck, ...]
    brokers: int
    brokers_dead: int
    topics: int
    partitions: int
    offline_partitions: int
    under_replicated_partitions: int
    under_min_isr_partitions: int
    preferred_imbalance: int
    as_of: AsOf


class Resignation(Question, frozen=True):
    """Give the controllership up, if it is held under `expected_epoch`."""

    expected_epoch: Int32
    reason: Reason = ""


class Resigned(Answer, frozen=True):
    """The controllership was given up. `active_id`: who has it now, as far as is known."""

    epoch: int
    active_id: int | None
