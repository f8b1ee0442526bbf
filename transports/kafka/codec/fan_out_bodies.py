"""Request bodies for several brokers with common partitions, encoded for several brokers at a time.

The first caller encodes every partition, and assembles the bodies of the brokers that follow along with its own. A body
is returned once and then dropped: each broker has its own body, and a second delivery encodes it again.
"""

import threading
import weakref
from collections.abc import Callable
from typing import Any, Final

from kactl.decide.outbound.fan_out import FanOut, PartitionStatesView
from kactl.decide.state.rows import Ints

from .row import Columns, Layout, Records
from .topic_header import TopicHeaders

# Rows that are copied into bodies at a time, unless a single broker has more; a row takes 0.07 microseconds.
ROWS_AT_ONCE: Final = 1 << 14


class _Making:
    """Progress of the bodies of one `FanOut`."""

    __slots__ = ("bodies", "made", "records")

    def __init__(self, count: int) -> None:
        self.records: Records | None = None
        self.made = bytearray(count)  # 1 for each broker with a body that has been assembled
        self.bodies: dict[int, memoryview] = {}  # assembled and not returned yet


class FanOutBodies:
    """Bodies by their content, until it is dropped. May be used by several threads.

    Args:
        layout: of one partition.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._lock = threading.RLock()  # reentrant, because a Told may die while this very thread holds it
        self._makings: weakref.WeakKeyDictionary[FanOut, _Making] = weakref.WeakKeyDictionary()

    def is_light(self, fan_out: FanOut, place: int, rows_max: int) -> bool:
        """Returns whether `body` takes at most as long as encoding `rows_max` rows."""
        with self._lock:
            making = self._makings.get(fan_out)
            if making is not None and place in making.bodies:
                return True
            if making is not None and making.records is not None:
                return fan_out.size_of(place) <= ROWS_AT_ONCE
        rows = fan_out.size_of(place) if making is not None and making.made[place] else len(fan_out.states)
        return rows <= rows_max

    def body(self, states: PartitionStatesView, headers: Callable[[], TopicHeaders]) -> memoryview | None:
        """Body of the request to one broker; None if it was handed out already.

        Args:
            headings: makes those of `states.fan_out.states.topics`.
        """
        fan_out = states.fan_out
        assert fan_out is not None
        with self._lock:
            making = self._makings.setdefault(fan_out, _Making(len(fan_out)))
            body = making.bodies.pop(states.place, None)
            if body is not None or making.made[states.place]:
                return body
            places = _next(fan_out, states.place, making.made)
            for place in places:
                making.made[place] = 1
            records = making.records
        if records is None:
            records = Records(self._layout, columns_of(fan_out.states, self._layout), len(fan_out.states))
        begin = fan_out.bounds[places.start]
        bounds = [bound - begin for bound in fan_out.bounds[places.start : places.stop + 1]]
        positions = fan_out.positions[begin : begin + bounds[-1]]
        topic: Ints = fan_out.states.topic[positions]
        bodies = records.arrays(positions, bounds, headers(), topic)
        with self._lock:
            making.bodies.update(zip(places, bodies, strict=True))
            making.records = None if all(making.made) else records
            return making.bodies.pop(states.place)


def columns_of(states: Any, layout: Layout) -> Columns:
    return {name: getattr(states, name) for name, _ in layout}


def _next(fan_out: FanOut, place: int, made: bytearray) -> range:
    """Returns the places, from `place` on, of the bodies to assemble next."""
    end = place + 1
    while end < len(fan_out) and not made[end] and fan_out.bounds[end + 1] - fan_out.bounds[place] <= ROWS_AT_ONCE:
        end += 1
    return range(place, end)
