"""Arguments of the public methods: accepted text forms, and rejections that name the value."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import kactl
from kactl.model.errors import BadConfig, BadRequest, NotController, NotFound
from tests.support.clocks import settle
from tests.support.controller_harness import open_standby, world

pytestmark = pytest.mark.anyio


async def test_election_accepts_text() -> None:
    async with world(1, 2) as here:
        await here.create("orders", [[1, 2]])
        await here.stop(1)
        await here.start(1)
        await here.write_isr("orders-0", 1, 2)
        assert here.known("orders-0").leader == 2

        (result,) = await here.controller.elect("preferred", ["orders-0"])

        assert (result.outcome, result.leader) == ("ok", 1)


async def test_reassignment_accepts_text() -> None:
    async with world(1, 2, 3) as here:
        await here.create("orders", [[1, 2]])

        (planned,) = await here.controller.reassign({"orders-0": [2, 3]}, dry_run=True)
        listed = await here.controller.reassignments(["orders-0"])
        (cancelled,) = await here.controller.cancel(["orders-0"])

        assert planned.assignment == kactl.Assignment((2, 3, 1), adding=(3,), removing=(1,))
        assert listed == {}
        assert cancelled.error is kactl.ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


Call = Callable[[kactl.Controller], Awaitable[Any]]
REFUSED: dict[str, tuple[Call, str, str]] = {
    "kind of election": (lambda c: c.elect("prefered"), "kind", "'prefered' is not a kind .* 'preferred' or 'unclean'"),
    "number as kind": (lambda c: c.elect(0), "kind", "0 is not a kind"),  # type: ignore[arg-type]
    "partition without number": (lambda c: c.elect("unclean", ["orders"]), "partitions[0]", "'orders' .* topic-0"),
    "one partition": (lambda c: c.elect("unclean", "orders-0"), "partitions", r"\['orders-0'\]"),
    "partition as tuple": (
        lambda c: c.elect("unclean", [("orders", 0)]),  # type: ignore[list-item]
        "partitions[0]",
        r"\('orders', 0\) is not a partition",
    ),
    "number of partitions": (lambda c: c.elect("unclean", 7), "partitions", "7 is not a list"),  # type: ignore[arg-type]
    "target": (lambda c: c.reassign({"orders": [1]}), "targets", "'orders' is not a partition"),
    "list of targets": (lambda c: c.reassign(["orders-0"]), "targets", "not a mapping"),  # type: ignore[arg-type]
    "target twice": (
        lambda c: c.reassign({"orders-0": [1], kactl.TopicPartition("orders", 0): [2]}),  # type: ignore[arg-type]
        "targets",
        "named twice",
    ),
    "text as broker": (
        lambda c: c.reassign({"orders-0": ["1"]}),  # type: ignore[arg-type]
        "targets[orders-0][0]",
        "'1' is not a whole number",
    ),
    "text as brokers": (
        lambda c: c.reassign({"orders-0": "12"}),  # type: ignore[arg-type]
        "targets[orders-0]",
        "'12' is not a list of broker ids",
    ),
    "cancelled": (lambda c: c.cancel(["orders"]), "partitions[0]", "'orders'"),
    "listed": (lambda c: c.reassignments(["orders"]), "partitions[0]", "'orders'"),
    "topic": (lambda c: c.create_topic(7), "topic", "7 is not text"),  # type: ignore[arg-type]
    "partitions of a topic": (lambda c: c.create_topic("a", partitions="6"), "partitions", "'6'"),  # type: ignore[arg-type]
    "fractional partitions": (lambda c: c.create_topic("a", partitions=1.5), "partitions", "1.5"),  # type: ignore[arg-type]
    "true as count": (lambda c: c.create_topic("a", replication_factor=True), "replication_factor", "True"),
    "assignment": (lambda c: c.create_topic("a", assignment=[[1]]), "assignment", "mapping"),  # type: ignore[arg-type]
    "config": (lambda c: c.create_topic("a", config={"retention.ms": 1}), "config", "1 is not text"),  # type: ignore[dict-item]
    "deleted topic": (lambda c: c.delete_topic(None), "topic", "None"),  # type: ignore[arg-type]
    "grown to": (lambda c: c.grow_topic("orders", "9"), "count", "'9'"),  # type: ignore[arg-type]
    "drained": (lambda c: c.drain("1"), "broker", "'1'"),  # type: ignore[arg-type]
    "restored": (lambda c: c.restore("1"), "broker", "'1'"),  # type: ignore[arg-type]
    "epoch": (lambda c: c.resign(expected_epoch="1"), "expected_epoch", "'1'"),  # type: ignore[arg-type]
    "unclean": (lambda c: c.set_unclean_leader_election("false"), "allowed", "'false'"),  # type: ignore[arg-type]
    "feature": (lambda c: c.update_features(["x"]), "updates[0]", "kactl.FeatureUpdate"),  # type: ignore[list-item]
}


@pytest.mark.parametrize("name", REFUSED)
async def test_invalid_argument_is_rejected_by_name(name: str) -> None:
    call, field, reason = REFUSED[name]
    async with world(1, 2) as here:
        await here.create("orders", [[1, 2]])
        before = here.controller.history.seq

        with pytest.raises(BadRequest, match=reason) as caught:
            await call(here.controller)
        await settle()

        assert caught.value.field == field
        assert here.controller.history.seq == before


def test_queries_reject_invalid_partition_names() -> None:
    controller = kactl.Controller(0)

    with pytest.raises(BadRequest, match="'orders' is not a partition"):
        controller.partition("orders")
    with pytest.raises(BadRequest, match="'orders' is not a partition"):
        controller.explain("orders")
    with pytest.raises(BadRequest, match=r"\['partitions'\] are no kinds of events: .*partition"):
        controller.events(kinds=["partitions"])


def test_constructors_reject_invalid_numbers() -> None:
    store, hub = kactl.MemoryStore(), kactl.MemoryHub()

    with pytest.raises(BadRequest, match="node_id: '1'"):
        kactl.Controller("1")  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="count: '3'"):
        kactl.Participants("3", store=store, hub=hub)  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="broker_id: -1 is negative"):
        kactl.Participant(-1, store=store, hub=hub)
    with pytest.raises(BadConfig, match=r"'4.0' is not supported"):
        kactl.Controller(0, level="4.0")


# -- explain -----------------------------------------------------------------------------------------------------------


async def test_explain_names_leader_and_candidates() -> None:
    async with world(1, 2) as here:
        await here.create("orders", [[1, 2]])

        explanation = here.controller.explain("orders-0")

        assert isinstance(explanation, kactl.Explanation)
        assert explanation == here.controller.explain(kactl.TopicPartition("orders", 0))
        assert (explanation.leader, [candidate.broker for candidate in explanation.candidates]) == (1, [1, 2])
        assert "it is the preferred replica" in explanation.verdict
        with pytest.raises(NotFound, match="orders-9"):
            here.controller.explain("orders-9")


async def test_explain_deletion_names_its_blockers() -> None:
    async with world(1, 2) as here:
        await here.create("orders", [[1, 2]])
        assert here.controller.explain_deletion("orders") == kactl.DeletionExplanation("orders", "none", ())
        await here.stop(2)

        await here.controller.delete_topic("orders", timeout_ms=0)
        await settle()

        explanation = here.controller.explain_deletion("orders")
        assert explanation.deletion == "halted"
        assert "2" in explanation.waits_for[0]
        with pytest.raises(NotFound, match="no topic clicks"):
            here.controller.explain_deletion("clicks")


async def test_standby_does_not_explain() -> None:
    async with world(1, 2) as here:
        await here.create("orders", [[1, 2]])
        other, _ = open_standby(here, 101)

        async with other:
            await settle()

            with pytest.raises(NotController):
                other.explain("orders-0")
            with pytest.raises(NotController):
                other.explain_deletion("orders")


class PartOfAStore:
    async def __aenter__(self) -> "PartOfAStore":
        return self

    async def controller(self) -> None: ...


def test_object_without_all_methods_of_a_protocol_is_rejected() -> None:
    part: Any = PartOfAStore()
    hub = kactl.MemoryHub()
    makers: dict[str, list[Callable[[], object]]] = {
        "store": [lambda: kactl.Controller(1, store=part), lambda: kactl.Participant(1, store=part, hub=hub)],
        "network": [
            lambda: kactl.Controller(1, network=part),
            lambda: kactl.Controller(1, hub=part),
            lambda: kactl.Participant(1, store=kactl.MemoryStore(), network=part),
            lambda: kactl.Participants(1, store=kactl.MemoryStore(), hub=part),
        ],
    }

    for field, each in makers.items():
        for make in each:
            with pytest.raises(BadRequest, match=r"PartOfAStore lacks .*: implement kactl") as refused:
                make()
            assert refused.value.field == field
            missing = refused.value.reason.partition(":")[0]
            assert ("participant_side" if field == "network" else "__aexit__, assignments") in missing
            assert " controller," not in missing
