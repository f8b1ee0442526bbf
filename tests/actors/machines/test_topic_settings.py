"""`min.insync.replicas` of topics: precedence, refresh, and a store that does not respond."""

import asyncio
from collections.abc import Collection

import pytest

from kactl.actors.machines.topic_settings import READ_LIMIT_S, RETRY_MS, UNKNOWN
from kactl.model.errors import StoreUnavailable
from tests.support.clocks import settle
from tests.support.controller_harness import World, world
from tests.support.scripted_store import fails

pytestmark = pytest.mark.anyio

KEY = "min.insync.replicas"


async def values(w: World) -> dict[str, int]:
    """Returns the value of each topic after a refresh."""
    controller = w.controller
    await controller.topic_settings.refresh(controller.cluster)
    found = controller.topic_settings.min_isr_of_topics(controller.cluster.table)
    return {topic.name: int(found[topic.number]) for topic in controller.cluster.table.topics()}


async def test_topic_override_precedes_store_default_and_own_setting() -> None:
    async with world(1, min_insync_replicas=3) as w:
        await w.create("a", [[1]])
        await w.create("b", [[1]])
        await w.store.set_topic_config("a", {KEY: "2"})
        await settle()
        assert await values(w) == {"a": 2, "b": 3}

        await w.store.set_default_config({KEY: "4"})
        await settle()
        assert await values(w) == {"a": 2, "b": 4}

        await w.store.set_topic_config("a", {})
        await w.store.set_default_config({})
        await settle()
        assert await values(w) == {"a": 3, "b": 3}


async def test_only_changed_configs_are_read_again() -> None:
    async with world(1) as w:
        for name in ("a", "b", "c"):
            await w.create(name, [[1]])
        asked = record_topic_configs(w)
        await values(w)
        await values(w)
        assert asked == [["a", "b", "c"]]

        await w.store.set_topic_config("b", {KEY: "2"})
        await w.create("d", [[1]])
        await settle()
        asked.clear()

        assert await values(w) == {"a": 1, "b": 2, "c": 1, "d": 1}
        # The handler of the changed configuration reads it for elections too.
        assert ["b", "d"] in asked
        assert not any("a" in names or "c" in names for names in asked)


async def test_recreated_topic_has_its_own_value() -> None:
    async with world(1) as w:
        await w.create("a", [[1]])
        await w.store.set_topic_config("a", {KEY: "2"})
        await settle()
        assert await values(w) == {"a": 2}
        await w.delete("a")

        await w.create("a", [[1]])

        assert await values(w) == {"a": 1}


async def test_change_during_a_read_is_not_lost() -> None:
    async with world(1) as w:
        await w.create("a", [[1]])
        store = w.controller.store
        real = store.topic_configs

        async def overtaken(topics: Collection[str]) -> dict[str, dict[str, str] | None]:
            found = await real(topics)
            store.topic_configs = real  # type: ignore[method-assign]
            await w.store.set_topic_config("a", {KEY: "2"})
            await settle()
            return found

        store.topic_configs = overtaken  # type: ignore[method-assign]
        assert await values(w) == {"a": UNKNOWN}

        assert await values(w) == {"a": 2}


@pytest.mark.parametrize("text", ["0", "-1", "two", "9" * 30, "٢"])
async def test_invalid_value_is_unknown(text: str) -> None:
    async with world(1) as w:
        await w.create("a", [[1]])
        await w.store.set_topic_config("a", {KEY: text})
        await settle()

        assert await values(w) == {"a": UNKNOWN}


async def test_store_failure_leaves_values_unknown_until_the_next_retry() -> None:
    async with world(1) as w:
        await w.create("a", [[1]])
        w.script("topic_configs", fails(StoreUnavailable("away")))
        assert await values(w) == {"a": UNKNOWN}
        assert await values(w) == {"a": UNKNOWN}

        await w.wait(RETRY_MS + 1)

        assert await values(w) == {"a": 1}


async def test_wait_for_a_hanging_store_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kactl.actors.machines.topic_settings.READ_LIMIT_S", READ_LIMIT_S / 100)
    async with world(1) as w:
        await w.create("a", [[1]])
        never = asyncio.Event()

        async def hang(*arguments: object) -> None:
            await never.wait()

        w.controller.store.topic_configs = hang  # type: ignore[method-assign,assignment]

        assert await values(w) == {"a": UNKNOWN}


def record_topic_configs(w: World) -> list[list[str]]:
    """Record the topics of each later call of `topic_configs`."""
    asked: list[list[str]] = []
    real = w.controller.store.topic_configs

    async def recorded(topics: Collection[str]) -> dict[str, dict[str, str] | None]:
        asked.append(list(topics))
        return await real(topics)

    w.controller.store.topic_configs = recorded  # type: ignore[method-assign]
    return asked
