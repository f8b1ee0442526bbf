"""A call of `lead` that returns is named in a warning, unless it has left tasks behind."""

import anyio
import pytest

import kactl

pytestmark = pytest.mark.anyio


class Returns(kactl.PartitionHandler):
    async def lead(self, leader: kactl.Leader) -> None:
        pass


class Serves(kactl.PartitionHandler):
    async def lead(self, leader: kactl.Leader) -> None:
        leader.tasks.start_soon(anyio.sleep_forever)


@pytest.mark.parametrize(
    ("handler", "warns"), [(Returns, True), (Serves, False), (kactl.PartitionHandler, False)], ids=str
)
async def test_lead_that_returns_is_a_warning(
    handler: type[kactl.PartitionHandler], warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        kactl.Controller(100) as controller,
        kactl.Participant(1, store=controller.store, hub=controller.hub, handler=handler) as participant,
    ):
        await controller.create_topic("t", assignment={0: [1]})
        await anyio.wait_all_tasks_blocked()

        assert participant.leadership("t-0") is not None
        assert ("lead of the handler of t-0 has returned under token 1.0" in caplog.text) == warns


async def test_another_controller_with_the_same_id_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    store = kactl.MemoryStore()
    async with kactl.Controller(100, store=store) as first:
        await first.wait_active()
        async with kactl.Controller(100, store=store.another()) as second:
            await anyio.wait_all_tasks_blocked()

            assert not second.is_active
            assert "controller 100 is active, which is the id of this instance, too" in caplog.text
