"""States of the cluster at earlier times, from snapshots and the events after them.

The state at a time is that of the newest snapshot before it, with the events in between. It is known while this
instance was the controller: from each takeover until the resignation, or until the last event of a run that was killed.
"""

import contextlib
import mmap
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio
import msgspec
import numpy as np

from kactl.decide.messages.log import AnyEvent, ControllerEvent, PartitionEvent, TopicEvent, decode
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.records import Assignments, Found, Leaderships
from kactl.model import NO_BROKER, PartitionState, TopicRef
from kactl.runtime.threads import run_in_thread
from kactl.telemetry.past_states import NotCovered, Period
from kactl.telemetry.terms import TERMS_MAX

from . import snapshots
from .past import CONTROLLER, TERM_BYTES_MAX, mapped, newest_of
from .segments import paths
from .snapshots import Snapshot

_RELEVANT: Final = (b'{"kind":"partition"', b'{"kind":"topic"')
_SEQ: Final = re.compile(rb'"seq":([0-9]{1,18}),"time_ms":([0-9]{1,18})')
_HEAD_BYTES: Final = 100
_GONE: Final = ("deleted", "vanished")
_NO_END: Final = 1 << 62
# The log is written within this time, unless the controller is busy.
_SETTLED_MS: Final = 10_000
_SCALARS: Final = ("partition", "leader", "leader_epoch", "partition_epoch", "controller_epoch", "recovering")


class LoggedStates:
    """Earlier states from the log in a folder. See `kactl.telemetry.past_states.PastStates`.

    The state that was read last is kept, because a list of partitions is read page by page.
    """

    def __init__(self, folder: Path, *, now_ms: Callable[[], int]) -> None:
        self._folder = folder
        self._now_ms = now_ms
        self._reading = anyio.Lock()
        self._last: tuple[int, Cluster] | None = None

    async def at(self, time_ms: int) -> Cluster | NotCovered:
        """See `PastStates`."""
        async with self._reading:
            if self._last is not None and self._last[0] == time_ms:
                return self._last[1]
            now_ms = self._now_ms()
            found = await run_in_thread(state_at, self._folder, time_ms, now_ms)
            # What happened in the last seconds may not be written yet.
            if isinstance(found, Cluster) and time_ms < now_ms - _SETTLED_MS:
                self._last = time_ms, found
            return found


class _Known(NamedTuple):
    """A snapshot, and until when the events after it are complete: until `end_seq`, at `end_ms`."""

    seq: int
    time_ms: int
    path: Path
    end_seq: int
    end_ms: int


def state_at(folder: Path, time_ms: int, now_ms: int) -> Cluster | NotCovered:
    """Read the state at a time. Called in a thread."""
    known = _known(folder, now_ms)
    fitting = [one for one in known if one.time_ms <= time_ms <= one.end_ms]
    while fitting:
        latest = fitting.pop()
        snapshot = snapshots.read(latest.path)
        if snapshot is not None:
            return _replayed(snapshot, _events(folder, snapshot.seq, latest.end_seq, time_ms))
    reason = "the log has no state of that time" if known else "the log has no states"
    return NotCovered(reason, _periods(known))


def _known(folder: Path, now_ms: int) -> list[_Known]:
    """Returns the snapshots, oldest first, each with the end of the controllership that it belongs to."""
    ends = newest_of(folder, ControllerEvent, CONTROLLER, TERM_BYTES_MAX, 2 * TERMS_MAX)
    known = []
    for seq, time_ms, path in snapshots.times(folder):
        end = next((event for event in ends if event.seq > seq), None)
        known.append(_Known(seq, time_ms, path, _NO_END, now_ms) if end is None
                     else _Known(seq, time_ms, path, end.seq, end.time_ms))  # fmt: skip
    return known


def _periods(known: list[_Known]) -> tuple[Period, ...]:
    """Returns the periods, each from the first of the snapshots that have the same end."""
    begins: dict[int, Period] = {}
    for one in known:
        begins.setdefault(one.end_seq, Period(one.time_ms, one.end_ms))
    return tuple(begins.values())


# -- replaying ---------------------------------------------------------------------------------------------------------


def _events(folder: Path, after: int, end_seq: int, time_ms: int) -> Iterator[AnyEvent]:
    """Yields the events after number `after` and before `end_seq`, up to a time."""
    with contextlib.ExitStack() as stack:
        # All are opened before the first is read: a rotation renames them meanwhile.
        files = [stack.enter_context(mapped(path)) for path in paths(folder)][::-1]
        begins = [_stamp(data, 0) for data in files]
        for number, data in enumerate(files):
            following = begins[number + 1] if number + 1 < len(files) else None
            if following is not None and following[0] <= after:
                continue
            start = 0
            while start < len(data):
                stop = data.find(b"\n", start)
                stop = len(data) if stop < 0 else stop
                stamp = _stamp(data, start)
                if stamp is not None and stamp[0] > after:
                    if stamp[0] >= end_seq or stamp[1] > time_ms:
                        return
                    event = _event(data[start:stop])
                    if event is not None:
                        yield event
                start = stop + 1


def oldest_seq(folder: Path) -> int:
    """Returns the number of the oldest event in the log; 0 if there is none."""
    oldest = 0
    for path in paths(folder):
        with mapped(path) as data:
            stamp = _stamp(data, 0)
        oldest = oldest if stamp is None else stamp[0]
    return oldest


def _stamp(data: mmap.mmap | bytes, start: int) -> tuple[int, int] | None:
    """Returns number and time of the event in the line at a position; None if it is not one."""
    matched = _SEQ.search(data[start : start + _HEAD_BYTES])
    return None if matched is None else (int(matched[1]), int(matched[2]))


def _event(line: bytes) -> AnyEvent | None:
    if not line.startswith(_RELEVANT):
        return None
    try:
        return decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _replayed(snapshot: Snapshot, events: Iterable[AnyEvent]) -> Cluster:
    changed: dict[tuple[str, int], PartitionEvent] = {}
    gone: set[str] = set()
    for event in events:
        if isinstance(event, PartitionEvent):
            changed[event.topic, event.partition] = event
        elif isinstance(event, TopicEvent) and event.what in _GONE:
            gone.add(event.topic)
            changed = {name: other for name, other in changed.items() if name[0] != event.topic}
    return _cluster(snapshot, gone, changed)


def _cluster(snapshot: Snapshot, gone: set[str], changed: dict[tuple[str, int], PartitionEvent]) -> Cluster:
    names = list(dict.fromkeys([*snapshot.names, *(topic for topic, _ in changed)]))
    number = {name: position for position, name in enumerate(names)}
    keys = np.array([number[topic] << 32 | partition for topic, partition in changed], np.int64)
    own = snapshot.topic.astype(np.int64) << 32 | snapshot.columns["partition"]
    stays = ~np.isin(own, keys) & ~np.isin(snapshot.topic, [number[name] for name in gone if name in number])
    before = dict(zip(own.tolist(), range(len(own)), strict=True)) if any(
        event.replicas is None for event in changed.values()
    ) else {}  # fmt: skip
    later = [event for event in changed.values() if event.to_state != PartitionState.ABSENT]
    replicas = [
        event.replicas if event.replicas is not None else _assigned(snapshot, before, number, event) for event in later
    ]
    table_of = {
        name: np.concatenate([column[..., stays], np.array([getattr(event, name) for event in later], column.dtype)])
        for name, column in snapshot.columns.items()
        if name in _SCALARS
    }
    state = np.concatenate(
        [snapshot.columns["state"][stays], np.array([int(event.to_state) for event in later], np.uint8)]
    )
    topic = np.concatenate([snapshot.topic[stays], np.array([number[event.topic] for event in later], np.int32)])
    cluster = Cluster(0)
    assignments = _side_by_side(snapshot.columns["replicas"][:, stays], replicas)
    unmoved = np.zeros(assignments.shape, np.bool_)
    rows = cluster.table.put_assignments(
        Assignments(
            tuple(map(TopicRef, names)), topic, table_of["partition"], assignments, adding=unmoved, removing=unmoved
        )
    )
    cluster.table.put_leaderships(
        rows,
        Leaderships(
            status=np.where(table_of["leader_epoch"] >= 0, Found.FOUND, Found.MISSING).astype(np.uint8),
            leader=table_of["leader"],
            leader_epoch=table_of["leader_epoch"],
            isr=_side_by_side(snapshot.columns["isr"][:, stays], [event.isr for event in later]),
            partition_epoch=table_of["partition_epoch"],
            controller_epoch=table_of["controller_epoch"],
            recovering=table_of["recovering"],
        ),
    )
    cluster.table.set_states(rows, state)
    return cluster


def _assigned(
    snapshot: Snapshot, before: dict[int, int], number: dict[str, int], event: PartitionEvent
) -> tuple[int, ...]:
    """Returns the assignment of a partition whose event has none: that of the snapshot, or else the ISR."""
    position = before.get(number[event.topic] << 32 | event.partition)
    if position is None:
        return event.isr
    replicas = snapshot.columns["replicas"][:, position]
    return tuple(replicas[replicas != NO_BROKER].tolist())


def _side_by_side(columns: Any, further: list[tuple[int, ...]]) -> Any:
    """Returns int32[W, n + k]: columns of brokers, and k further ones."""
    width = max([len(columns), *map(len, further)])
    joined = np.full((width, columns.shape[1] + len(further)), NO_BROKER, np.int32)
    joined[: len(columns), : columns.shape[1]] = columns
    for position, brokers in enumerate(further, start=columns.shape[1]):
        joined[: len(brokers), position] = brokers
    return joined
