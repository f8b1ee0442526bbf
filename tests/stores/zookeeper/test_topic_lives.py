"""Nodes `partitions` of topics: one of several concurrent commits creates each, and the others wait for it."""

import anyio
import pytest

from kactl.model import TopicRef
from kactl.model.errors import StoreError
from kactl.stores.zookeeper.topic_lives import TopicLives

pytestmark = pytest.mark.anyio


async def test_node_is_created_once_and_others_wait() -> None:
    lives, steps = TopicLives(), list[str]()

    async def other() -> None:
        with lives.creating(["a", "b"]) as missing:
            assert missing == ["b"]
        await lives.created(["a", "b"])
        steps.append("the other commit goes on")

    async with anyio.create_task_group() as tasks:
        with lives.creating(["a"]) as missing:
            assert missing == ["a"]
            tasks.start_soon(other)
            await anyio.wait_all_tasks_blocked()
            steps.append("created")

    assert steps == ["created", "the other commit goes on"]
    with lives.creating(["a", "b"]) as missing:
        assert missing == []


async def test_node_is_created_again_after_a_failure() -> None:
    lives = TopicLives()
    with pytest.raises(StoreError), lives.creating(["a"]):
        raise StoreError("gone")

    with lives.creating(["a"]) as missing:
        assert missing == ["a"]
    lives.forget_containers(["a"])
    with lives.creating(["a"]) as missing:
        assert missing == ["a"]


@pytest.mark.parametrize(("czxid", "expected"), [(5, []), (6, ["a"])], ids=["the same topic", "the next one"])
async def test_node_is_created_once_in_each_life_of_a_topic(czxid: int, expected: list[str]) -> None:
    lives = TopicLives()
    lives.record([TopicRef("a")], [5])
    with lives.creating(["a"]):
        pass

    lives.record([TopicRef("a")], [czxid])

    with lives.creating(["a"]) as missing:
        assert missing == expected
