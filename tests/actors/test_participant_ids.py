"""Ids that the controller gives to participants."""

from collections.abc import Sequence

import msgspec
import pytest

from kactl.actors.handlers import participant_ids
from kactl.actors.handlers.participant_ids import RESERVED_MS
from kactl.decide.messages.admin import AllocateBrokerId
from kactl.model import GIVEN_IDS, NO_BROKER, Maintenance
from kactl.model.errors import NoFreeId
from tests.support.controller_harness import World, world

pytestmark = pytest.mark.anyio

FIRST, SECOND, THIRD = GIVEN_IDS[:3]


async def named(w: World, *names: str) -> Sequence[int]:
    return [await w.controller.ask(AllocateBrokerId(NO_BROKER, name, b"")) for name in names]


async def unnamed(w: World, start: bytes, broker: int = NO_BROKER) -> int:
    given: int = await w.controller.ask(AllocateBrokerId(broker, "", start))
    return given


async def stored(w: World) -> Maintenance:
    return (await w.store.membership()).maintenance


async def test_name_has_one_id_which_is_stored() -> None:
    async with world(1) as w:
        assert await named(w, "a", "b", "a") == [FIRST, SECOND, FIRST]
        assert (await stored(w)).names == {"a": FIRST, "b": SECOND}


async def test_ids_that_brokers_or_replicas_have_are_not_given() -> None:
    async with world(1, FIRST) as w:
        await w.create("orders", [[FIRST, 1], [SECOND, 1]])
        await w.stop(FIRST)

        assert await named(w, "a") == [THIRD]
        assert await unnamed(w, b"x") == THIRD + 1


async def test_id_is_reserved_until_its_participant_has_registered() -> None:
    async with world(1) as w:
        assert [await unnamed(w, start) for start in (b"x", b"y", b"x")] == [FIRST, SECOND, FIRST]
        await w.start(FIRST)
        await w.stop(FIRST)
        assert await unnamed(w, b"z") == FIRST
        await w.wait(RESERVED_MS)
        assert await unnamed(w, b"new") == FIRST
        assert await unnamed(w, b"y", SECOND) == SECOND
        assert await unnamed(w, b"other", SECOND) != SECOND


async def test_earliest_unused_name_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(participant_ids, "NAMES_MAX", 2)
    async with world(1) as w:
        await named(w, "a", "b")
        await w.start(FIRST)

        assert await named(w, "c", "a") == [SECOND, FIRST]
        assert (await stored(w)).names == {"a": FIRST, "c": SECOND}
        await w.start(SECOND)
        with pytest.raises(NoFreeId, match="2 names of participants are in use"):
            await named(w, "d")


async def test_names_outlive_orders_of_operators() -> None:
    async with world(1, 2) as w:
        await named(w, "a")
        await w.controller.drain(1)
        assert set((await stored(w)).drains) == {1}

        assert msgspec.structs.replace(await stored(w), drains={}) == Maintenance(names={"a": FIRST})


async def test_nothing_is_given_when_no_id_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(participant_ids, "GIVEN_IDS", range(FIRST, SECOND))
    async with world(1) as w:
        await named(w, "a")
        with pytest.raises(NoFreeId, match="are in use: stop participants, or give some of them an id of their own"):
            await unnamed(w, b"x")
