"""State machines with live counts, and the history of one partition."""

from typing import Annotated

from msgspec import Meta

from .common import LIMIT_DEFAULT, Answer, AsOf, Limit, Question
from .events import HandlerEvent, PartitionEvent, ReplicaEvent


class StateCount(Answer, frozen=True):
    """A state.

    Attributes:
        count: partitions or replicas that are in it now; null for the state of those that do not exist.
        illegal: attempts of partitions in it to make a transition that is not drawn; each was rejected and logged.
        refused: attempts that failed for another reason, such as no replica that may lead.
    """

    name: str
    meaning: str
    count: int | None
    illegal: int = 0
    refused: int = 0


class TransitionCount(Answer, frozen=True):
    """A transition that is allowed. `needs`: its precondition, or empty; `count`: how often it was made."""

    from_state: str
    to_state: str
    needs: str
    count: int
    per_second: float


class StateMachine(Answer, frozen=True):
    """A state machine."""

    states: tuple[StateCount, ...]
    transitions: tuple[TransitionCount, ...]


class StateMachines(Answer, frozen=True):
    """Both state machines. Transitions and attempts are counted since `since_ms`.

    That is later than the requested time if the events of that time are of an earlier process or no longer kept.
    """

    partition: StateMachine
    replica: StateMachine
    since_ms: int
    as_of: AsOf


class StateMachineQuery(Question, frozen=True):
    """Selects the time in which transitions are counted."""

    window_s: Annotated[int, Meta(ge=1, le=86_400, description="count the transitions of so many seconds")] = 60


class PartitionHistory(Answer, frozen=True):
    """Events of one partition and its replicas, oldest first; at most the newest `limit`.

    `since_ms`: all events after this time are included; null if there are more events than the limit.
    """

    items: tuple[PartitionEvent | ReplicaEvent | HandlerEvent, ...]
    since_ms: int | None
    as_of: AsOf


class HistoryQuery(Question, frozen=True):
    """Limits a history."""

    limit: Limit = LIMIT_DEFAULT
