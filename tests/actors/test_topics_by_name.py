"""Every public method that takes a topic accepts its name; it accepts a TopicRef, or says that it does not."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import kactl
from kactl.model.errors import BadRequest, KactlError

pytestmark = pytest.mark.anyio

# Commands take names: a TopicRef may be of an earlier topic of the name.
BY_NAME = {
    "create_topic",
    "ensure_topic",
    "topic_config",
    "set_topic_config",
    "changed_topic_config",
    "delete_topic",
    "grow_topic",
    "wait_ready",
}
READS = {"partitions_of", "wait_deleted", "leaderships", "iter_leaderships", "leader", "routes", "explain_deletion"}
MORE: dict[str, tuple[Any, ...]] = {
    "set_topic_config": ({},),
    "changed_topic_config": ({},),
    "grow_topic": (2,),
    "leader": (0,),
}


def methods_with_a_topic() -> list[tuple[type, str]]:
    return [
        (kind, name)
        for kind in (kactl.Controller, kactl.Participant, kactl.Spectator)
        for name, found in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and {"topic", "ref"} & inspect.signature(found).parameters.keys()
    ]


def test_each_method_is_listed() -> None:
    assert {name for _, name in methods_with_a_topic()} == BY_NAME | READS


@pytest.mark.parametrize("topic", [5, None, b"t", ("t", 0)])
async def test_argument_that_is_no_topic_is_refused(topic: Any) -> None:
    async with running() as roles:
        for kind, name in methods_with_a_topic():
            if topic is None and "leaderships" in name:
                continue  # all of them
            with pytest.raises(BadRequest, match="is not text: give a str"):
                await called(getattr(roles[kind], name), topic, *MORE.get(name, ()))


async def test_topic_is_named_or_given_as_a_reference() -> None:
    async with running() as roles:
        controller, participant = roles[kactl.Controller], roles[kactl.Participant]
        (ref,) = controller.topics()
        for topic in ("t", ref):
            assert [view.name.partition for view in controller.partitions_of(topic)] == [0]
            assert [route.partition.partition for route in roles[kactl.Spectator].routes(topic)] == [0]
            assert roles[kactl.Spectator].leader(topic, 0).leader == 1
            assert [leader.partition.topic for leader in participant.leaderships(topic)] == ["t"]
        other = kactl.TopicRef("t", b"0" * 16)
        assert controller.partitions_of(other) == []

        await controller.wait_deleted(other)  # it is not the present one
        await controller.wait_deleted("unknown")
        await controller.delete_topic("t", timeout_ms=0)
        await controller.wait_deleted("t")

        assert controller.topics() == []


async def test_command_refuses_a_reference() -> None:
    async with running() as roles:
        (ref,) = roles[kactl.Controller].topics()
        for kind, name in methods_with_a_topic():
            if name in BY_NAME | {"explain_deletion"}:
                with pytest.raises(KactlError, match="is not text: give a str"):
                    await called(getattr(roles[kind], name), ref, *MORE.get(name, ()))


async def called(method: Callable[..., Any], *arguments: Any) -> None:
    result = method(*arguments)
    if inspect.isawaitable(result):
        await result
    elif inspect.isgenerator(result):
        list(result)


class running:  # noqa: N801 - used like a function
    """A controller, a participant and a spectator of a topic `t`."""

    async def __aenter__(self) -> dict[type, Any]:
        self.controller = kactl.Controller(100)
        await self.controller.__aenter__()
        hub, store = self.controller.hub, self.controller.store
        self.participant = kactl.Participant(1, store=store, hub=hub, handler=kactl.PartitionHandler)
        await self.participant.__aenter__()
        self.spectator = kactl.Spectator(hub=hub)
        await self.spectator.__aenter__()
        await self.controller.create_topic("t", assignment={0: [1]})
        await self.spectator.wait_ready()
        while not self.spectator.routes("t") or not self.participant.leaderships("t"):
            await kactl.SystemClock().sleep_ms(5)
        return {kactl.Controller: self.controller, kactl.Participant: self.participant, kactl.Spectator: self.spectator}

    async def __aexit__(self, *_: object) -> None:
        await self.spectator.__aexit__(None, None, None)
        await self.participant.__aexit__(None, None, None)
        await self.controller.__aexit__(None, None, None)
