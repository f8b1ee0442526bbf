"""Explanation of a partition's leadership for operators."""

import pytest

from kactl.decide.machines.explain import Candidate, Explanation, explain_partition
from kactl.model import NO_LEADER, TopicPartition
from tests.support.clocks import settle
from tests.support.controller_harness import World, world

pytestmark = pytest.mark.anyio


def explained(w: World, name: str) -> Explanation:
    found = explain_partition(w.controller.cluster, TopicPartition.parse(name))
    assert found is not None
    return found


def verdicts(found: Explanation) -> dict[int, str]:
    return {each.broker: each.verdict for each in found.candidates}


async def test_preferred_leader_needs_no_action() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])

        found = explained(w, "orders-0")

        assert found.verdict == "broker 1 leads, elected under leader epoch 0; it is the preferred replica"
        assert found.remedies == ()
        assert found.candidates[1] == Candidate(2, "live", True, False, True, "could lead")


async def test_electable_preferred_replica_is_shown_with_the_command() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        await w.stop(1)

        found = explained(w, "orders-0")
        assert found.verdict.endswith("the preferred replica 1 cannot: its broker is dead and it is not in sync")

        await w.start(1)
        await w.write_isr("orders-0", 1, 2)
        found = explained(w, "orders-0")
        assert (found.leader, found.remedies) == (2, ("give it back: kactl elect preferred -p orders-0",))


async def test_in_sync_replicas_are_listed_before_out_of_sync_ones() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        await w.write_isr("orders-0", 1)
        await w.stop(1)

        found = explained(w, "orders-0")

        assert found.leader == -1
        assert found.verdict == "no leader: none of the in-sync replicas (1) is online"
        assert found.remedies == (
            "bring back broker 1, which has all records",
            "or let broker 2 lead, which loses the records that it does not have: kactl elect unclean -p orders-0",
        )
        assert verdicts(found) == {1: "cannot lead: its broker is dead", 2: "cannot lead: it is not in sync"}


async def test_all_replicas_are_listed_if_none_is_online() -> None:
    async with world(1, 2, 3) as w:
        await w.create("orders", [[1, 2]])
        await w.stop(1, 2)

        assert explained(w, "orders-0").remedies[-1] == "none of its replicas is online: start brokers 1, 2"


async def test_new_partition_waits_for_any_of_its_replicas() -> None:
    async with world(1) as w:
        await w.create("orders", [[2, 3]])

        found = explained(w, "orders-0")

        assert found.verdict == "it never had a leader: none of its replicas is online"
        assert found.remedies == ("start one of the brokers 2, 3",)


async def test_failed_directory_is_shown() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        w.brokers.failed_dirs[1] = {"orders-0"}
        await w.store.notify_log_dir(1)
        await settle()

        found = explained(w, "orders-0")

        assert found.leader == 2
        assert verdicts(found)[1] == "cannot lead: its directory has failed and it is not in sync"


async def test_unknown_partition_has_no_explanation() -> None:
    async with world(1) as w:
        assert explain_partition(w.controller.cluster, TopicPartition("orders", 0)) is None


async def test_remedy_for_a_drained_broker_is_undrain() -> None:
    async with world(1, 2) as w:
        await w.controller.drain(2)
        await w.create("orders", [[2]])

        found = explained(w, "orders-0")

        assert found.leader == NO_LEADER
        assert found.remedies == ("let broker 2 lead again: kactl broker drain --undo 2",)
