"""Events and actions in words, for timelines and reports."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kactl.testing.history import Event

from .script import Action, Script

# Left out of reports: another event has the same information.
HIDDEN: Final = frozenset(
    {"ctl.brokers", "req.attempt", "req.enqueue", "req.replace", "req.reply", "store.answered", "probe.hit"}
)
_LONGEST_VALUE: Final = 60


def describe(event: Event) -> str:
    """Returns an event in a few words, without its node and time."""
    words = _WORDS.get(event.kind)
    try:
        return words(event.fields) if words is not None else _plainly(event)
    except (KeyError, TypeError, IndexError):
        return _plainly(event)  # an event of the test's own, with fields of its own


def _plainly(event: Event) -> str:
    fields = ", ".join(f"{name} {_short(value)}" for name, value in event.fields.items())
    return f"{event.kind}: {fields}" if fields else event.kind


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _commit(fields: Mapping[str, Any]) -> str:
    fence = "" if fields["fence"] is None else f" under epoch {fields['fence']}"
    keys = ", ".join(_op(op) for op in fields["ops"]) or ", ".join(fields["conflicts"])
    outcome = "" if fields["outcome"] == "ok" else f": {fields['outcome']}"
    return f"{fields['client'] or 'server'} {fields['operation']}{fence}{f' [{_short(keys)}]' if keys else ''}{outcome}"


def _op(op: Any) -> str:
    key, _, new, value = op
    if value is None:
        return f"{key} removed"
    if "leader" in value:
        return f"{key} v{new} leader {value['leader']} epoch {value['leader_epoch']} isr {value['isr']}"
    return f"{key} v{new}"


def _partition(fields: Mapping[str, Any]) -> str:
    name = f"{fields['topic']}-{fields['partition']}"
    if fields.get("refused"):
        return f"{name} stays {fields['from_state']}: {fields['refused']}"
    return (
        f"{name} {fields['from_state']} > {fields['to_state']}, leader {fields['leader']} "
        f"epoch {fields['leader_epoch']} isr {fields['isr']}"
    )


def _request(fields: Mapping[str, Any]) -> str:
    return f"{fields['what']} #{fields['message']} epoch {fields['controller_epoch']}"


def _accepted(fields: Mapping[str, Any]) -> str:
    states = [f"{led[0]}-{led[2]} leader {led[3]} epoch {led[4]}" for led in fields.get("led", ())]
    states += [f"{stopped[0]}-{stopped[2]} stop" for stopped in fields.get("stopped", ())]
    return f"accepts {_request(fields)}{f' [{_short(chr(44).join(states))}]' if states else ''}"


_WORDS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "store.commit": _commit,
    "store.unknown": lambda f: f"answer of #{f['txn']} to {f['client']} lost, {'' if f['done'] else 'not '}done",
    "store.session": lambda f: f"session {f['session']} of {f['client']} {f['what']}",
    "ctl.elected": lambda f: f"elected, epoch {f['controller_epoch']}",
    "ctl.ready": lambda f: f"ready, epoch {f['controller_epoch']}",
    "ctl.resigned": lambda f: f"resigned from epoch {f['controller_epoch']}: {f['cause']}",
    "fsm.partition": _partition,
    "fsm.replica": lambda f: f"{f['topic']}-{f['partition']} on {f['broker']}: {f['from_state']} > {f['to_state']}",
    "fsm.topic": lambda f: f"topic {f['topic']} {f['what']}",
    "isr.decide": lambda f: f"{f['topic']}-{f['partition']} isr {f['isr']} of broker {f['broker']}: {f['error']}",
    "req.drop": lambda f: f"channel {f['channel']} closed",
    "req.send": lambda f: f"sends {_request(f)} to broker {f['broker']}",
    "req.accept": _accepted,
    "req.reject": lambda f: f"rejects {_request(f)}: {f['reason']}",
    "req.lost": lambda f: f"no answer to #{f['message']}",
    "role.apply": lambda f: (
        f"{f['topic']}-{f['partition']} {f['role']} epoch {f['leader_epoch']}"
        f"{'' if f['outcome'] == 'applied' else ': ' + f['outcome']}"
    ),
    "role.stop": lambda f: (
        f"{f['topic']}-{f['partition']} {'deleted' if f['delete'] else 'stopped'}"
        f"{'' if f['outcome'] == 'applied' else ': ' + f['outcome']}"
    ),
    "isr.propose": lambda f: f"proposes isr {f['isr']} of {f['topic']}-{f['partition']} epoch {f['leader_epoch']}",
    "broker.complaint": lambda f: f"{f['invariant']}: {f['text']}",
    "admin.call": lambda f: f"call {f['call']} of {f['controller']}: {f['operation']} {f['target']}".rstrip(),
    "admin.reply": lambda f: f"reply {f['call']}: {f['outcome']}",
    "node.start": lambda f: "starts" if f["incarnation"] == 1 else f"starts again, process {f['incarnation']}",
    "node.crash": lambda f: "stops" if f["clean"] else "killed",
    "fault.begin": lambda f: f"fault: {f['fault']} {f['target']}".rstrip(),
    "fault.end": lambda f: f"fault ends: {f['fault']} {f['target']}".rstrip(),
    "task.failed": lambda f: f"task {f['task']} failed: {f['error']}",
}


def action(one: Action) -> str:
    """Returns an action in one line, without its time: `kill node broker 4; restart_after_ms 200`."""
    args = "; ".join(f"{name} {_short(value)}" for name, value in one.args.items())
    return f"{one.do} {args}".rstrip()


def moment(one: Action) -> str:
    """Returns when an action happens: `t=30.00` or the name of its point."""
    if one.at_point:
        return one.at_point if one.hit == 1 else f"{one.at_point} #{one.hit}"
    return f"t={one.at_ms / 1000:.2f}"


def world(script: Script) -> str:
    """Returns the world of a script: `memory/model-3.9, 4 brokers, 2 controllers`."""
    spec = script.world
    brokers = f"{spec.brokers.kind}-{spec.brokers.level}" if spec.brokers.kind == "model" else spec.brokers.kind
    return f"{spec.store}/{brokers}, {spec.brokers.count} brokers, {spec.controllers} controllers"
