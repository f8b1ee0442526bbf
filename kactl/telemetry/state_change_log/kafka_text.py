"""Events in the log format of Kafka 3.9, for tools that read its state-change.log and controller.log.

Times are UTC. Events for which Kafka has no line, such as a modified broker registration, are omitted. Where Kafka's
line has a field that the event lacks, the field is empty: the assigned replicas of a new partition, and the other live
brokers when a broker bounced.
"""

import datetime
from collections.abc import Callable
from typing import Any, Final

from kactl.decide.messages.log import AnyEvent, BrokerEvent, ControllerEvent, PartitionEvent, ReplicaEvent, TopicEvent
from kactl.model import PARTITION_STATE_NAMES, REPLICA_STATE_NAMES, PartitionState
from kactl.runtime.escaping import escaped

_STATE_CHANGE: Final = "state.change.logger"
_CONTROLLER: Final = "kafka.controller.KafkaController"
# Level, message, logger.
_Line = tuple[str, str, str]


def render(event: AnyEvent, *, controller_id: int) -> bytes | None:
    """Returns the line or lines of an event, each with its newline; None if Kafka has no line for it."""
    formatter = _FORMATTERS.get(type(event))
    line = None if formatter is None else formatter(event, controller_id)
    if line is None:
        return None
    level, message, logger = line
    time = datetime.datetime.fromtimestamp(event.time_ms / 1000, datetime.UTC)
    first, *more = message.split("\n")
    epoch = f" epoch={event.controller_epoch}" if logger == _STATE_CHANGE else ""
    timestamp = f"{time:%Y-%m-%d %H:%M:%S},{event.time_ms % 1000:03}"
    lines = [f"[{timestamp}] {level} [Controller id={controller_id}{epoch}] {first} ({logger})", *more]
    return ("\n".join(lines) + "\n").encode()


def _partition(event: PartitionEvent, controller_id: int) -> _Line:
    name = f"{event.topic}-{event.partition}"
    before, after = PARTITION_STATE_NAMES[event.from_state], PARTITION_STATE_NAMES[event.to_state]
    if event.refused:
        failed = (
            f"Controller {controller_id} epoch {event.controller_epoch} failed to change state for partition {name}"
        )
        reason = escaped(event.refused)
        return (
            "ERROR",
            f"{failed} from {before} to {after}\nkafka.common.StateChangeFailedException: {reason}",
            _STATE_CHANGE,
        )
    if event.to_state is PartitionState.NEW:
        return "INFO", f"Changed partition {name} state from {before} to {after} with assigned replicas ", _STATE_CHANGE
    if event.to_state is not PartitionState.ONLINE:
        return "TRACE", f"Changed partition {name} state from {before} to {after}", _STATE_CHANGE
    isr = ", ".join(f"BrokerState(brokerId={broker}, brokerEpoch=-1)" for broker in event.isr)
    state = (
        f"LeaderAndIsr(leader={event.leader}, leaderEpoch={event.leader_epoch}, isrWithBrokerEpoch=List({isr}), "
        f"leaderRecoveryState={'RECOVERING' if event.recovering else 'RECOVERED'}, "
        f"partitionEpoch={event.partition_epoch})"
    )
    return "INFO", f"Changed partition {name} from {before} to {after} with state {state}", _STATE_CHANGE


def _replica(event: ReplicaEvent, controller_id: int) -> _Line:
    moved = f"from {REPLICA_STATE_NAMES[event.from_state]} to {REPLICA_STATE_NAMES[event.to_state]}"
    name = f"{event.topic}-{event.partition}"
    if event.refused:
        failed = (
            f"Controller {controller_id} epoch {event.controller_epoch} initiated state change of replica "
            f"{event.broker} for partition {name} {moved} failed"
        )
        return "ERROR", f"{failed}\nkafka.common.StateChangeFailedException: {escaped(event.refused)}", _STATE_CHANGE
    return "TRACE", f"Changed state of replica {event.broker} for partition {name} {moved}", _STATE_CHANGE


def _controller(event: ControllerEvent, controller_id: int) -> _Line | None:
    if event.what == "resigned":
        return "DEBUG", "Resigned", _CONTROLLER
    if event.what != "elected":
        return None
    epoch = event.controller_epoch
    elected = f"{event.controller_id} successfully elected as the controller. Epoch incremented to {epoch}"
    return "INFO", f"{elected} and epoch zk version is now {epoch}", _CONTROLLER


_BROKER_LINES: Final = {
    "started": "New broker startup callback for {}",
    "failed": "Broker failure callback for {}",
    "shutting-down": "Shutting down broker {}",
    "drained": "Shutting down broker {}",
    "undrained": "Removed {} from list of shutting down brokers.",
    "restored": "Removed {} from list of shutting down brokers.",
    "bounced": "Newly added brokers: , deleted brokers: , bounced brokers: {}, all live brokers: ",
}


def _broker(event: BrokerEvent, controller_id: int) -> _Line | None:
    line = _BROKER_LINES.get(event.what)
    return None if line is None else ("INFO", line.format(event.broker), _CONTROLLER)


_TOPIC_LINES: Final = {
    "created": "New topics: [Set({})], deleted topics: [Set()], new partition replica assignment [Map()]",
    "deletion started": "Deletion of topic {} (re)started",
    "deletion halted": "Halted deletion of topics {}",
    "deleted": "Deletion of topic {} successfully completed",
}


def _topic(event: TopicEvent, controller_id: int) -> _Line | None:
    line = _TOPIC_LINES.get(event.what)
    if line is None:
        return None
    cause = escaped(event.cause)
    return "INFO", line.format(event.topic) + (f" due to {cause}" if cause else ""), _CONTROLLER


_FORMATTERS: Final[dict[type, Callable[[Any, int], _Line | None]]] = {
    PartitionEvent: _partition,
    ReplicaEvent: _replica,
    ControllerEvent: _controller,
    BrokerEvent: _broker,
    TopicEvent: _topic,
}
