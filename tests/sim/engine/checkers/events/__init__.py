"""Events that checkers read: their kinds, their fields, and the modules that record them.

A producer calls `history.record(kind, **fields)` with exactly the fields of the kind's class below, as plain values:
ints, strings, lists, dicts with string keys, and tuples in the order of the named tuples below. `validate` compares an
event with its class; tests of producers call it for each event. Events of other kinds may be recorded freely, for
timelines and tests.

| Kind | Recorded by | When |
|---|---|---|
| `store.commit` | server of the simulated store | each operation that may write, in commit order, also a refused one |
| `store.unknown` | link of the simulated store | the answer of a writing operation is lost, or arrives too late |
| `store.answered` | link of the simulated store | the answer "ok" of a writing operation reaches its client |
| `store.session` | server of the simulated store | a session of a controller instance or a broker begins or ends |
| `store.reopened` | world of a store with files | its files were read again after a crash |
| `ctl.*`, `fsm.*`, `isr.decide`, `session.*` | `observe` | see the classes |
| `req.enqueue`, `req.replace`, `req.attempt`, `req.drop` | `observe` | see the classes |
| `req.send`, `req.accept`, `req.reject`, `req.reply`, `req.lost` | simulated network and brokers | see the classes |
| `role.apply`, `role.stop`, `isr.propose`, `broker.complaint` | simulated brokers | see the classes |
| `link.open`, `link.close` | simulated network | a participant has a link to a controller, or has none |
| `routes.seen` | simulated spectators | a spectator looks at its table |
| `lease.*`, `phase.*`, `handler.report` | simulated participants | see the classes |
| `admin.call`, `admin.reply` | workload | a client calls a method of a controller, and receives the result |
| `reassign.asked`, `reassign.answered` | workload | see the classes |
| `node.start`, `node.crash`, `fault.begin`, `fault.end`, `task.failed` | runner | see the classes |

Nodes of controller instances are named `controller 100`, of brokers `broker 1`; other names are free. A node's name
stays the same over restarts; `incarnation` counts its processes from 1.

A store key names one entry of the store, the same for all kinds of stores:

| Key | Value |
|---|---|
| `epoch` | `{"epoch": controller epoch}` |
| `controller` | `{"id": controller id, "epoch": its epoch}` |
| `brokers/ID` | `{"epoch": broker epoch}`, and `"evicted": true` after an eviction |
| `topics/NAME` | `{"id": topic id in hex, "partitions": {"0": [replicas, adding, removing], ...}}` |
| `leadership/NAME/INDEX` | `{"leader", "leader_epoch", "isr", "recovering", "controller_epoch"}` |
| `deletions/NAME`, `configs/NAME`, `config` | `{}` for a mark; the settings |
| `requests/reassignment`, `requests/preferred`, `features`, `producer ids`, `notifications/...` | any object |
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from kactl.testing.history import Event

from . import brokers, controllers, participants, runs, stores
from .fields import Fields

__all__ = ["FIELDS", "validate"]

FIELDS: Final[Mapping[str, type[Fields]]] = {
    **stores.FIELDS,
    **controllers.FIELDS,
    **brokers.FIELDS,
    **participants.FIELDS,
    **runs.FIELDS,
}


def validate(event: Event) -> None:
    """Compare an event with the class of its kind. Kinds that are not listed are not checked.

    Raises:
        ValueError: a field is missing, unknown, or of another type. The text names the event.
    """
    fields = FIELDS.get(event.kind)
    if fields is None:
        return
    try:
        msgspec.json.decode(msgspec.json.encode(event.fields), type=fields)
    except (msgspec.MsgspecError, TypeError) as error:
        raise ValueError(f"event {event.seq}, {event.kind}: {error}: {event.fields}") from error
