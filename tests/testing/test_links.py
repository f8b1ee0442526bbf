"""Channels between nodes: delays, order, cuts, holds, loss and duplication."""

import asyncio
from collections.abc import Callable

import pytest

from kactl.testing import Node, sim
from kactl.testing.links import Channel, Links
from kactl.testing.nodes import NODE

from .running import this_loop

Arrivals = list[tuple[float, object]]


class Pair:
    """Two nodes with a channel from one to the other, and the messages that have arrived."""

    def __init__(self, latency_ms: tuple[float, float] = (10.0, 10.0), *, ordered: bool = True) -> None:
        self.loop = this_loop()
        self.links = Links(self.loop, {"net": latency_ms})
        self.a, self.b = self.loop.node("a"), self.loop.node("b")
        self.channel: Channel = self.links.channel("net", "a", "b", ordered=ordered)
        self.arrived: Arrivals = []
        self.lost: Arrivals = []

    def send(self, *messages: object) -> None:
        for message in messages:
            self.channel.send(self._note(self.arrived, message), to=self.b, lost=self._note(self.lost, message))

    def _note(self, where: Arrivals, message: object) -> Callable[[], None]:
        return lambda: where.append((round(self.loop.now_s * 1000, 3), message))

    @property
    def messages(self) -> list[object]:
        return [message for _, message in self.arrived]


def test_message_runs_on_its_receiver_after_the_latency() -> None:
    async def main() -> tuple[Arrivals, list[Node | None]]:
        pair, nodes = Pair(), list[Node | None]()
        pair.send("m")
        pair.channel.send(lambda: nodes.append(NODE.get()), to=pair.b)
        await asyncio.sleep(1)
        return pair.arrived, nodes

    arrived, nodes = sim.run(main)

    assert arrived == [(10.0, "m")]
    assert [node and node.name for node in nodes] == ["b"]


@pytest.mark.parametrize("seed", range(5))
def test_only_ordered_channels_keep_the_order(seed: int) -> None:
    async def main() -> tuple[list[object], list[object]]:
        ordered, free = Pair((1, 500)), Pair((1, 500), ordered=False)
        for pair in (ordered, free):
            pair.send(*range(20))
        await asyncio.sleep(1)
        return ordered.messages, free.messages

    ordered, free = sim.run(main, seed=seed)

    assert ordered == list(range(20))
    assert free != ordered
    assert sorted(map(str, free)) == sorted(map(str, ordered))


@pytest.mark.parametrize("deliver", [True, False])
def test_messages_wait_for_the_end_of_a_cut_or_are_lost(deliver: bool) -> None:
    async def main() -> tuple[Arrivals, Arrivals]:
        pair = Pair()
        pair.send("before")
        pair.links.cut("a", "b")
        pair.send("during")
        await asyncio.sleep(5)
        pair.links.heal(deliver=deliver)
        pair.send("after")
        await asyncio.sleep(1)
        return pair.arrived, pair.lost

    arrived, lost = sim.run(main)

    during = [(5010.0, "during")] if deliver else []
    assert arrived == [(10.0, "before"), *during, (5010.0, "after")]
    assert [message for _, message in lost] == ([] if deliver else ["during"])


def test_cut_applies_to_later_channels_and_one_direction() -> None:
    async def main() -> list[bool]:
        links = Links(this_loop())
        links.cut("a", "*", both=False)
        links.cut("c", "b", kind="store")
        names = [("net", "a", "b"), ("net", "b", "a"), ("store", "c", "b"), ("store", "b", "c"), ("net", "c", "b")]
        cut = [links.channel(*name).is_cut for name in names]
        links.heal("a", "*", both=False)
        return [*cut, *(links.channel(*name).is_cut for name in names)]

    assert sim.run(main) == [True, False, True, True, False, False, False, True, True, False]


@pytest.mark.parametrize("ordered", [True, False])
def test_held_message_arrives_late(ordered: bool) -> None:
    async def main() -> list[object]:
        pair = Pair(ordered=ordered)
        pair.channel.hold()
        pair.send("held", "next")
        await asyncio.sleep(5)
        pair.channel.release()
        pair.send("last")
        await asyncio.sleep(1)
        return pair.messages

    assert sim.run(main) == (["held", "next", "last"] if ordered else ["next", "held", "last"])


def test_hold_of_one_kind_lets_other_messages_pass() -> None:
    async def main() -> list[object]:
        pair = Pair(ordered=False)
        pair.channel.hold(kind="Stop")
        for message, kind in (("first", "Start"), ("held", "Stop"), ("next", "Stop")):
            pair.channel.send(pair._note(pair.arrived, message), to=pair.b, kind=kind)
        await asyncio.sleep(5)
        pair.channel.release()
        await asyncio.sleep(1)
        return pair.messages

    assert sim.run(main) == ["first", "next", "held"]


def test_lost_and_doubled_messages() -> None:
    async def main() -> tuple[list[object], int, list[object]]:
        losing, doubling = Pair(), Pair(ordered=False)
        losing.channel.loss = doubling.channel.duplication = 0.5
        for pair in (losing, doubling):
            pair.send(*range(200))
        await asyncio.sleep(1)
        return losing.messages, len(losing.lost), doubling.messages

    arrived, lost, doubled = sim.run(main)

    assert 60 < lost < 140
    assert len(arrived) + lost == 200
    assert 260 < len(doubled) < 340
    assert set(doubled) == set(range(200))


def test_delay_postpones_all_later_messages() -> None:
    async def main() -> Arrivals:
        pair = Pair()
        pair.send("before")
        pair.channel.delay(3_000)
        pair.send("one", "two")
        await asyncio.sleep(5)
        pair.send("after")
        await asyncio.sleep(1)
        return pair.arrived

    assert sim.run(main) == [(10.0, "before"), (3000.0, "one"), (3000.0, "two"), (5010.0, "after")]


def test_end_of_a_delay_applies_to_messages_on_their_way() -> None:
    async def main() -> Arrivals:
        pair = Pair()
        pair.send("before")
        pair.channel.delay(3_000)
        pair.send("one", "two")
        await asyncio.sleep(1)
        pair.channel.end_delay()
        pair.send("after")
        await asyncio.sleep(5)
        return pair.arrived

    assert sim.run(main) == [(10.0, "before"), (1010.0, "one"), (1010.0, "two"), (1010.0, "after")]


def test_killed_node_receives_nothing() -> None:
    async def main() -> list[object]:
        pair = Pair()
        pair.send("m")
        pair.loop.kill(pair.b)
        await asyncio.sleep(1)
        return pair.messages

    assert sim.run(main) == []


def test_limited_latency_holds_for_all_later_messages() -> None:
    async def main() -> Arrivals:
        pair = Pair()
        pair.send("before")
        pair.links.limit_latency("other", 1.0)
        await asyncio.sleep(1)
        pair.send("of another kind")
        pair.links.limit_latency("net", 4.0)
        await asyncio.sleep(1)
        pair.send("limited")
        await asyncio.sleep(1)
        later = pair.links.channel("net", "b", "a")
        assert later.latency_ms == (4.0, 4.0)
        return pair.arrived

    assert sim.run(main) == [(10.0, "before"), (1010.0, "of another kind"), (2004.0, "limited")]
