"""A store that is open is not entered again: by a controller, or by two of them."""

from pathlib import Path

import pytest

import kactl
from kactl.model.errors import IllegalState

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> kactl.Store:
    return kactl.MemoryStore() if request.param == "memory" else kactl.SqliteStore(tmp_path / "kactl.db")


async def test_store_that_the_program_has_entered_is_refused(store: kactl.Store) -> None:
    async with store:
        with pytest.raises(IllegalState, match="is open already: a controller or spectator opens and"):
            async with kactl.Controller(100, store=store):
                pytest.fail("entered")

        assert await store.topics() == []


async def test_exception_of_the_program_is_not_replaced(store: kactl.Store) -> None:
    with pytest.raises(LookupError, match="of the program"):  # noqa: PT012
        async with store:
            with pytest.raises(IllegalState):
                await kactl.Controller(100, store=store).__aenter__()
            raise LookupError("of the program")


async def test_store_of_one_controller_is_refused_to_another(store: kactl.Store) -> None:
    async with kactl.Controller(100, store=store) as controller:
        await controller.wait_active()
        with pytest.raises(IllegalState, match="another object to each of them"):
            await kactl.Controller(101, store=store).__aenter__()

        await controller.store.set_topic_config("t", {})  # the first one goes on, and receives its changes
        assert controller.is_active


async def test_store_is_entered_again_after_it_was_left(store: kactl.Store) -> None:
    for _ in range(2):
        async with kactl.Controller(100, store=store) as controller:
            await controller.wait_active()
