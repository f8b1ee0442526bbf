"""This instance, the controller, and the cluster in numbers."""

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


class ClusterInfo(Answer, frozen=True):
    """The cluster in numbers; zeros while this instance is not the controller.

    Attributes:
        brokers: that are registered; `brokers_dead` hold replicas and are not registered.
        offline_partitions: in state offline, those of topics that are being deleted left out.
        preferred_imbalance: partitions that are not led by their preferred replica.
    """

    cluster: str
    controller_id: int | None
    epoch: int
    brokers: int
    brokers_dead: int
    topics: int
    partitions: int
    offline_partitions: int
    under_replicated_partitions: int
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
