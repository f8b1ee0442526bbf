"""This instance, the controller, and a summary of the cluster."""

from typing import Annotated, Literal

from msgspec import Meta

from kactl.model import UNTIL_MS_MAX

from .common import Answer, AsOf, Int32, Question, Reason


class Probe(Answer, frozen=True):
    """Liveness or readiness of this instance. `status`: ok, starting, or failing (the store cannot be used)."""

    status: str
    detail: str = ""


class InsecureInterface(Answer, frozen=True):
    """One reason why an interface is insecure.

    Attributes:
        interface: its name in `security.allow-insecure`.
        what: the configuration key and the reason.
        since_ms: for how long this process has known it.
    """

    interface: str
    what: str
    since_ms: int


class HoldInfo(Answer, frozen=True):
    """An instance that has resigned, and contests only where no other instance becomes the controller.

    Attributes:
        since_ms, until_ms: in milliseconds since 1970; `until_ms` is null without a time limit.
        by: the user; empty if a program ordered it.
    """

    controller_id: int
    since_ms: int
    until_ms: int | None
    by: str
    reason: str


class ControllerInfo(Answer, frozen=True):
    """This instance, and the current controller.

    Attributes:
        node_id: of this instance.
        active_id: the controller as far as this instance knows; null if there is none.
        ready: this instance is the controller and its takeover is complete.
        epoch: the controller epoch of this instance; 0 if it is not the controller.
        since_ms: when it became the controller; null if it is not.
        state, state_number: the controller's current work, with Kafka's names and numbers.
        changes: number of elections this instance has won since it started.
        queue_size: events that wait.
        participants: ids of the brokers that run in the same process, and can be killed and restarted.
        insecure: interfaces of the process without encryption or authentication, with the reasons.
        holds: instances that leave the controllership to others; null if the store does not respond to a standby.
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
    insecure: tuple[InsecureInterface, ...] = ()
    holds: tuple[HoldInfo, ...] | None = ()


class HealthCheck(Answer, frozen=True):
    """One health check.

    Attributes:
        result: `pass`; `warn`: the cluster serves with less reserve; `fail`: partitions do not serve, or something is
            stuck; `unknown`: the figure could not be determined; `skip`: does not apply to this instance.
        value, limit: in `unit`; null if there is no figure. Limits are those of `[health]` in the configuration.
        names: the first partitions, topics or brokers concerned.
        detail: the problem; `remedy`: how to solve it. Both are empty if there is none.
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
    """Summary of the cluster, and its health checks.

    A standby responds from its copy of the cluster, and with epoch 0.

    Attributes:
        node_id: of this instance; `is_active`: it is the controller.
        since_ms: when it became the controller; null if it is not.
        status: the worst result of the checks: `healthy`; `degraded` by a warning or an unknown figure; `unhealthy`.
        checks: always the same checks, in the same order.
        brokers: registered brokers; `brokers_dead`: brokers with replicas that are not registered.
        partitions: of replicated topics, as all counts of partitions here.
        offline_partitions: partitions in state offline, without those of topics that are being deleted.
        preferred_imbalance: partitions that are not led by their preferred replica.
        shards: partitions of ownership topics; `shards_without_owner`; `shards_failing`: shards whose owner's handler
            has failed. 0 from a standby.
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
    shards: int = 0
    shards_without_owner: int = 0
    shards_failing: int = 0


class Resignation(Question, frozen=True):
    """Resign as controller, if the controller epoch is `expected_epoch`.

    Attributes:
        hold: leave the controllership to other instances until the release, or `until_ms`, also after a restart. The
            instance contests only after three seconds without a controller.
        until_ms: end of the hold, in milliseconds since 1970, in the future.
    """

    expected_epoch: Int32
    dry_run: bool = False
    reason: Reason = ""
    hold: bool = False
    until_ms: Annotated[int, Meta(ge=0, le=UNTIL_MS_MAX)] | None = None


class Resigned(Answer, frozen=True):
    """The controller resigned. `active_id`: the controller now, as far as it is known."""

    epoch: int
    active_id: int | None


class Release(Question, frozen=True):
    """End the hold of an instance."""

    controller_id: Int32
    dry_run: bool = False
    reason: Reason = ""


class Released(Answer, frozen=True):
    """`changed`: the instance was held."""

    controller_id: int
    changed: bool
    dry_run: bool = False
