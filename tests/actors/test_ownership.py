"""Ownership topics: any participant may own any partition, and only what has to move moves."""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from kactl import Controller, Leader, MemoryStore, Participant, PartitionHandler
from kactl.decide.messages.admin import ApiPartitionReassignment
from kactl.decide.state.cluster import HandoverInProgress
from kactl.model import TopicPartition
from kactl.model.errors import BadRequest, TopicExists
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio

JOIN_MS = 3_000  # until a member that has joined gets shards
EXPIRED_MS = 19_000


class Cluster:
    """Participants over one controller, and which of them lead.

    Attributes:
        led: tokens under which `lead` runs now, by partition and participant.
        calls: of `lead`, by partition.
        gate: by participant, what its `prepare` waits for.
    """

    def __init__(self, controller: Controller, clock: ManualClock) -> None:
        self.controller = controller
        self.clock = clock
        self.members: dict[int, Participant] = {}
        self.led: dict[tuple[str, int], str] = {}
        self.calls: Counter[str] = Counter()
        self.followed: set[tuple[str, int]] = set()
        self.gate: dict[int, asyncio.Event] = {}
        self.poisoned: set[str] = set()  # partitions whose `prepare` fails
        self.broken: set[str] = set()  # partitions whose `lead` fails
        self.unable: set[tuple[str, int]] = set()  # the same at one member
        self.stubborn: dict[str, asyncio.Event] = {}  # partitions whose `lead` ignores its cancellation until it is set
        self.double: list[str] = []  # partitions that were led twice at one time
        self._stops: dict[int, asyncio.Event] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def handler(self, member: int) -> Callable[[TopicPartition], PartitionHandler]:
        cluster = self

        class Shard(PartitionHandler):
            async def prepare(self, leader: Leader) -> None:
                if member in cluster.gate:
                    await cluster.gate[member].wait()
                name = str(self.partition)
                if name in cluster.poisoned or (name, member) in cluster.unable:
                    raise OSError("poisoned")

            async def lead(self, leader: Leader) -> None:
                name = str(self.partition)
                if any(led == name for led, _ in cluster.led):
                    cluster.double.append(name)
                cluster.calls[name] += 1
                if name in cluster.broken:
                    raise OSError("broken")
                cluster.led[name, member] = str(leader.token)
                try:
                    await asyncio.Event().wait()
                finally:
                    del cluster.led[name, member]
                    if name in cluster.stubborn:
                        with anyio.CancelScope(shield=True):
                            await cluster.stubborn[name].wait()

            async def follow(self, follower: object) -> None:
                name = str(self.partition)
                cluster.followed.add((name, member))
                try:
                    await asyncio.Event().wait()
                finally:
                    cluster.followed.discard((name, member))

        return Shard

    async def join(self, member: int, **options: Any) -> Participant:
        participant = self.members[member] = Participant(
            member,
            store=self.controller.store,
            hub=self.controller.hub,
            clock=self.clock,
            handler=self.handler(member),
            **options,
        )
        began, self._stops[member] = asyncio.Event(), asyncio.Event()
        self._tasks[member] = asyncio.create_task(self._run(participant, began, self._stops[member]))
        await began.wait()
        await settle()
        return participant

    async def _run(self, participant: Participant, began: asyncio.Event, stop: asyncio.Event) -> None:
        async with participant:
            began.set()
            await stop.wait()

    async def stop(self, member: int) -> None:
        """Stop a participant in order."""
        stopping = self.stopping(member)
        for _ in range(100):
            await self.clock.advance(100)
        await stopping
        await settle()

    def stopping(self, member: int) -> asyncio.Task[None]:
        """Begin to stop a participant. Returns the task that ends with it."""
        del self.members[member]
        self._stops[member].set()
        return self._tasks[member]

    async def end(self) -> None:
        """Stop all participants."""
        for member in list(self.members):
            self.stopping(member)
        for _ in range(100):
            await self.clock.advance(1_000)
        await asyncio.gather(*self._tasks.values())

    async def fail(self, member: int) -> None:
        """End a participant without a word, and wait until its session has expired."""
        await self.members[member].kill()
        await self.clock.advance(EXPIRED_MS)
        await settle()

    @property
    def owned(self) -> dict[int, int]:
        """How many partitions each participant leads."""
        return dict(sorted(Counter(member for _, member in self.led).items()))

    async def create(self, partitions: int, topic: str = "jobs", **options: Any) -> None:
        await self.controller.create_topic(topic, partitions=partitions, kind="ownership", timeout_ms=0, **options)
        await settle()


@asynccontextmanager
async def open_cluster(*members: int, **settings: Any) -> AsyncIterator[Cluster]:
    clock = ManualClock()
    async with Controller(100, store=MemoryStore(clock=clock), clock=clock, **settings) as controller:
        cluster = Cluster(controller, clock)
        for member in members:
            await cluster.join(member)
        try:
            yield cluster
            assert cluster.double == []
        finally:
            for gate in cluster.gate.values():
                gate.set()
            await cluster.end()


async def test_partitions_are_owned_in_equal_shares() -> None:
    async with open_cluster(1, 2, 3) as cluster:
        await cluster.create(7)

        assert sorted(cluster.owned.values()) == [2, 2, 3]


async def test_topic_that_is_created_without_participants_is_owned_by_the_third() -> None:
    async with open_cluster() as cluster:
        await cluster.create(3)

        await cluster.join(1)

        assert cluster.owned == {1: 3}


async def test_member_that_joins_gets_its_share_and_interrupts_no_other_leader() -> None:
    async with open_cluster(1, 2) as cluster:
        await cluster.create(6)
        before = dict(cluster.led)
        await cluster.join(3)
        assert cluster.led == before

        await cluster.clock.advance(JOIN_MS + 2_000)

        assert cluster.owned == {1: 2, 2: 2, 3: 2}
        assert {key: token for key, token in cluster.led.items() if key[1] != 3}.items() <= before.items()
        assert sum(cluster.calls.values()) == 8


async def test_members_that_come_late_share_the_work_of_the_first() -> None:
    async with open_cluster(1) as cluster:
        await cluster.create(60)
        for member in (2, 3, 4):
            await cluster.join(member)

        await cluster.clock.advance(JOIN_MS + 10_000)

        assert cluster.owned == {1: 15, 2: 15, 3: 15, 4: 15}
        assert max(cluster.calls.values()) == 2


async def test_only_the_partitions_of_a_failed_member_move() -> None:
    async with open_cluster(1, 2, 3) as cluster:
        await cluster.create(6)
        others = {key: token for key, token in cluster.led.items() if key[1] != 1}

        await cluster.fail(1)

        assert cluster.owned == {2: 3, 3: 3}
        assert others.items() <= cluster.led.items()


async def test_last_member_is_replaced_by_any_other() -> None:
    async with open_cluster(1) as cluster:
        await cluster.create(4)
        await cluster.fail(1)
        assert cluster.owned == {}

        await cluster.join(2)

        assert cluster.owned == {2: 4}


async def test_standby_follows_and_takes_over() -> None:
    async with open_cluster(1, 2, 3) as cluster:
        await cluster.create(6, standby=1)
        assert len(cluster.followed) == 6
        standbys = dict(cluster.followed)
        lost = [name for name, member in cluster.led if member == 1]

        await cluster.fail(1)

        assert {name: member for name, member in cluster.led if name in lost} == {name: standbys[name] for name in lost}
        assert len(cluster.followed) == 6


async def test_standby_that_is_not_reached_yet_stays() -> None:
    """As after a takeover, until it has linked to the new controller."""
    async with open_cluster(1, 2, 3) as cluster:
        await cluster.create(1, standby=1)
        served = {member for _, member in (*cluster.led, *cluster.followed)}
        cluster.controller.cluster.set_fenced(frozenset(member for _, member in cluster.followed))

        (idle,) = cluster.members.keys() - served
        await cluster.fail(idle)

        view = cluster.controller.partition("jobs-0")
        assert view is not None
        assert {*view.isr} == {*view.replicas} == served
        assert len(cluster.followed) == 1


async def test_owner_learns_that_its_standby_left_while_it_was_not_reached() -> None:
    async with open_cluster(1, 2) as cluster:
        await cluster.create(1, standby=1)
        ((name, owner),) = cluster.led
        ((_, standby),) = cluster.followed
        cluster.controller.cluster.set_fenced(frozenset({owner}))
        await cluster.fail(standby)

        cluster.controller.cluster.set_fenced(frozenset())
        await cluster.join(3, groups=["others"])

        hosted = cluster.members[owner].hosted(TopicPartition.parse(name))
        assert hosted is not None
        assert hosted.replicas == (owner,)
        assert sum(cluster.calls.values()) == 1


async def test_number_of_standbys_is_a_setting_of_the_topic() -> None:
    async with open_cluster(1, 2, 3) as cluster:
        await cluster.create(2)
        assert cluster.followed == set()

        await cluster.controller.set_topic_config("jobs", {"ownership.standby": "2"})
        await settle()

        assert len(cluster.followed) == 4
        assert sum(cluster.calls.values()) == 2


async def test_owner_that_stops_leads_until_the_next_one_is_prepared() -> None:
    async with open_cluster(1, 2) as cluster:
        await cluster.create(2)
        cluster.gate[2] = asyncio.Event()
        (name,) = (name for name, member in cluster.led if member == 1)
        stopping = cluster.stopping(1)
        await cluster.clock.advance(5_000)
        assert (name, 1) in cluster.led

        cluster.gate[2].set()
        await cluster.clock.advance(200)

        assert cluster.owned == {2: 2}
        await cluster.clock.advance(5_000)
        await stopping


async def test_members_that_all_stop_do_not_wait_for_each_other() -> None:
    async with open_cluster(1, 2) as cluster:
        await cluster.create(4)
        cluster.gate[2] = asyncio.Event()

        first = cluster.stopping(1)
        await cluster.clock.advance(300)
        assert not first.done()
        second = cluster.stopping(2)
        for _ in range(10):
            await cluster.clock.advance(100)

        assert first.done()
        assert second.done()


async def test_owner_that_does_not_prepare_is_passed_over() -> None:
    async with open_cluster(1) as cluster:
        await cluster.create(2)
        cluster.gate[2] = asyncio.Event()
        await cluster.join(2, transition_timeout_ms=1e9)
        await cluster.clock.advance(JOIN_MS + 1_000)
        assert cluster.owned == {1: 2}

        await cluster.clock.advance(62_000)

        assert cluster.owned == {1: 2}
        cluster.gate[2].set()


async def test_handover_whose_next_owner_leads_is_over() -> None:
    """The former owner has registered again before its end was noticed."""
    async with open_cluster(1, 2) as cluster:
        await cluster.create(2)
        before = dict(cluster.led)
        handovers = cluster.controller.cluster.handovers
        handovers |= {TopicPartition.parse(name): HandoverInProgress(3 - owner, 0.0) for name, owner in before}

        await cluster.join(3, groups=["others"])
        await cluster.clock.advance(JOIN_MS + 2_000)

        assert handovers == {}
        assert cluster.led == before


@pytest.mark.parametrize("step_ms", [200, JOIN_MS + 2_000])
async def test_rolling_restart_calls_lead_once_for_most_partitions(step_ms: int) -> None:
    members = (1, 2, 3, 4, 5, 6)
    async with open_cluster(*members) as cluster:
        await cluster.create(12)
        cluster.calls.clear()

        for member in members:
            await cluster.stop(member)
            assert len(cluster.led) == 12
            await cluster.join(member)
            await cluster.clock.advance(step_ms)
            assert len(cluster.led) == 12
            assert max(cluster.owned.values()) <= 3
        await cluster.clock.advance(JOIN_MS + 2_000)

        assert cluster.calls.total() <= 15
        assert max(cluster.calls.values()) <= 2
        assert set(cluster.owned) == {*members}


async def test_single_restarted_member_gets_its_share_a_minute_later() -> None:
    async with open_cluster(1, 2, 3) as cluster:
        await cluster.create(12)
        await cluster.stop(1)
        await cluster.join(1)

        await cluster.clock.advance(JOIN_MS + 2_000)
        assert cluster.owned == {1: 2, 2: 5, 3: 5}
        for _ in range(70):
            await cluster.clock.advance(1_000)

        assert cluster.owned == {1: 3, 2: 4, 3: 5}


async def test_weight_is_the_share_of_a_member() -> None:
    async with open_cluster() as cluster:
        await cluster.join(1)
        await cluster.join(2, weight=3)
        await cluster.create(8)

        assert cluster.owned == {1: 2, 2: 6}


async def test_member_owns_only_what_it_offers() -> None:
    async with open_cluster() as cluster:
        await cluster.join(1, groups=["mail"])
        await cluster.join(2)
        await cluster.create(4)
        await cluster.create(4, "mail")

        assert {member for name, member in cluster.led if name.startswith("jobs")} == {2}
        assert cluster.owned == {1: 2, 2: 6} or cluster.owned == {1: 4, 2: 4}


async def test_topic_that_no_member_offers_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    async with open_cluster() as cluster:
        await cluster.join(1, groups=["mail"])
        await cluster.create(2)
        await cluster.join(2, groups=[])

        explanation = cluster.controller.explain("jobs-0")

        assert "participant 1 cannot own it: it offers other topics; 1 more cannot either" in explanation.verdict
        assert len([text for text in caplog.messages if "no participant offers it" in text]) == 1
        await cluster.join(3)
        assert cluster.owned == {3: 2}


async def test_owner_that_resigns_is_replaced() -> None:
    async with open_cluster(1, 2) as cluster:
        await cluster.create(2)
        (name,) = (name for name, member in cluster.led if member == 1)
        leader = cluster.members[1].leadership(name)
        assert leader is not None

        await leader.resign("too hot")
        await settle()

        assert cluster.owned == {2: 2}


async def test_partition_that_no_member_can_serve_is_tried_again_and_affects_no_other() -> None:
    async with open_cluster(1, 2) as cluster:
        cluster.poisoned.add("jobs-0")
        await cluster.create(6)
        await cluster.clock.advance(300_000)
        assert len(cluster.led) == 5
        before = dict(cluster.led)

        cluster.poisoned.clear()
        await cluster.clock.advance(120_000)

        assert len(cluster.led) == 6
        assert before.items() <= cluster.led.items()
        assert sorted(cluster.owned.values()) == [3, 3]


async def test_owner_leads_on_after_its_next_owner_has_died() -> None:
    async with open_cluster(1, 2) as cluster:
        await cluster.create(4)
        cluster.gate[3] = asyncio.Event()
        await cluster.join(3)
        await cluster.clock.advance(JOIN_MS + 2_000)
        (name,) = cluster.controller.cluster.handovers
        next_token = cluster.controller.partition(name).leader_epoch  # type: ignore[union-attr]
        before = dict(cluster.led)

        await cluster.fail(3)

        assert cluster.led == before
        assert set(cluster.calls.values()) == {1}
        assert cluster.controller.cluster.handovers == {}
        (owner,) = (member for led, member in before if led == str(name))
        leader = cluster.members[owner].leadership(name)
        assert leader is not None
        assert leader.token.leader_epoch > next_token


async def test_poisoned_shard_interrupts_no_other_on_its_way_through_the_members() -> None:
    async with open_cluster(1, 2, 3) as cluster:
        await cluster.create(8)  # two members own three shards, and one owns two
        (last,) = (member for member, owned in cluster.owned.items() if owned == 2)
        name = next(name for name, member in cluster.led if member == last)
        healthy = {led: token for led, token in cluster.led.items() if led[0] != name}
        cluster.broken.add(name)
        await cluster.members[last].leadership(name).resign("it fails")  # type: ignore[union-attr]

        owners = set()
        for _ in range(60):
            await cluster.clock.advance(10_000)
            owners.add(cluster.controller.partition(name).leader)  # type: ignore[union-attr]
            assert healthy.items() <= cluster.led.items()

        assert owners == {1, 2, 3}
        cluster.broken.clear()
        await cluster.clock.advance(120_000)
        assert sorted(cluster.owned.values()) == [2, 3, 3]
        assert healthy.items() <= cluster.led.items()


async def test_shard_that_fails_at_two_members_is_owned_by_the_third() -> None:
    async with open_cluster(1, 2, 3) as cluster:
        cluster.unable = {("jobs-0", 2), ("jobs-0", 3)}
        await cluster.create(9)  # equal shares: no member needs the shard more than another
        await cluster.clock.advance(120_000)

        assert ("jobs-0", 1) in cluster.led
        assert sum(cluster.owned.values()) == 9


async def test_call_that_was_stuck_leaves_nothing_to_reset(caplog: pytest.LogCaptureFixture) -> None:
    async with open_cluster(1, 2) as cluster:
        await cluster.create(2)
        (name,) = (name for name, member in cluster.led if member == 1)
        cluster.stubborn[name] = asyncio.Event()
        await cluster.controller.drain(1)
        await cluster.clock.advance(10_000)
        cluster.stubborn.pop(name).set()
        await cluster.clock.advance(5_000)
        assert cluster.owned == {2: 2}
        assert len([text for text in caplog.messages if f"participant 1 can serve {name} again (" in text]) == 1

        await cluster.controller.restore(1)
        await cluster.clock.advance(JOIN_MS + 10_000)

        assert cluster.owned == {1: 1, 2: 1}


async def test_partition_that_a_member_cannot_serve_is_owned_by_another() -> None:
    async with open_cluster(1) as cluster:
        cluster.poisoned.add("jobs-0")
        await cluster.create(2)
        await cluster.clock.advance(5_000)
        assert cluster.owned == {1: 1}
        cluster.poisoned.clear()

        await cluster.join(2)
        await cluster.clock.advance(JOIN_MS + 2_000)

        assert cluster.owned == {1: 1, 2: 1}


async def test_next_controller_knows_the_owners_and_interrupts_none() -> None:
    async with open_cluster(1, 2) as cluster:
        await cluster.create(4, standby=1)
        before = dict(cluster.led)

        await cluster.controller.resign()
        await cluster.clock.advance(2_000)
        await settle()

        assert cluster.led == before
        view = cluster.controller.partition("jobs-0")
        assert view is not None
        assert view.replicas[0] == view.leader
        assert set(view.replicas) == set(view.isr) == {1, 2}
        await cluster.clock.advance(JOIN_MS + 2_000)
        assert cluster.led == before


async def test_owner_fails_while_the_controller_changes() -> None:
    async with open_cluster(1, 2) as cluster:
        await cluster.create(4)
        await cluster.members[1].kill()
        await cluster.controller.resign()
        await cluster.clock.advance(2_000)

        await cluster.clock.advance(2 * EXPIRED_MS)

        assert cluster.owned == {2: 4}


async def test_drained_participant_owns_nothing() -> None:
    async with open_cluster(1, 2) as cluster:
        await cluster.create(4)

        await cluster.controller.drain(1)
        await settle()

        assert cluster.owned == {2: 4}
        await cluster.controller.restore(1)
        await cluster.clock.advance(JOIN_MS + 2_000)
        assert cluster.owned == {1: 2, 2: 2}


async def test_deleted_topic_leaves_nothing() -> None:
    async with open_cluster(1, 2) as cluster:
        await cluster.create(4, standby=1)

        await cluster.controller.delete_topic("jobs", timeout_ms=0)
        await settle()

        assert cluster.led == {}
        assert cluster.followed == set()
        await cluster.create(2)
        assert cluster.owned == {1: 1, 2: 1}


# -- requests ----------------------------------------------------------------------------------------------------------


async def ensure(cluster: Cluster, partitions: int, **options: Any) -> bool:
    asked = asyncio.create_task(cluster.controller.ensure_topic("jobs", partitions=partitions, **options))
    await settle()
    await cluster.clock.advance(1)
    return await asked


async def test_larger_number_of_partitions_grows_the_topic() -> None:
    async with open_cluster(1, 2) as cluster:
        assert await ensure(cluster, 8, kind="ownership")

        assert not await ensure(cluster, 12, kind="ownership")

        await settle()
        assert cluster.owned == {1: 6, 2: 6}
        assert set(cluster.calls.values()) == {1}


async def test_smaller_number_is_taken_as_the_stored_one_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with open_cluster(1) as cluster:
        await ensure(cluster, 12, kind="ownership")

        for _ in range(3):
            assert not await ensure(cluster, 8, kind="ownership")

    warnings = [text for text in caplog.messages if "12 partitions, and 8 were requested" in text]
    assert len(warnings) == 1


@pytest.mark.parametrize(("stored", "requested"), [("ownership", "replicated"), ("replicated", "ownership")])
async def test_topic_of_another_kind_is_rejected(stored: str, requested: str) -> None:
    async with open_cluster(1) as cluster:
        await ensure(cluster, 2, kind=stored)

        with pytest.raises(TopicExists, match=f"of the kind {stored}, and {requested} was requested"):
            await ensure(cluster, 2, kind=requested)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"kind": "owned"}, "kind"),
        ({"kind": "ownership", "replication_factor": 3}, "kind"),
        ({"standby": 1}, "standby"),
        ({"kind": "ownership", "standby": -1}, "config"),
    ],
)
async def test_contradicting_arguments_are_rejected(options: dict[str, Any], field: str) -> None:
    async with open_cluster(1) as cluster:
        with pytest.raises(BadRequest) as caught:
            await ensure(cluster, 2, **options)

        assert caught.value.field == field
        assert cluster.controller.topics() == []


async def test_partitions_cannot_be_reassigned() -> None:
    async with open_cluster(1, 2) as cluster:
        await cluster.create(1)

        (result,) = await cluster.controller.ask(ApiPartitionReassignment({TopicPartition("jobs", 0): (2,)}))

        assert "drain a participant" in result.message


def test_groups_and_weights_are_checked() -> None:
    with pytest.raises(BadRequest, match="one text"):
        Participant(1, controllers=["127.0.0.1:1"], groups="jobs")
    with pytest.raises(BadRequest, match="weight"):
        Participant(1, controllers=["127.0.0.1:1"], weight=0)


async def test_slow_end_of_one_shard_holds_up_no_other_of_a_leaver() -> None:
    async with open_cluster(1, 2) as cluster:
        await cluster.create(6)
        slow, *others = sorted(name for name, member in cluster.led if member == 1)
        cluster.stubborn[slow] = asyncio.Event()

        stopping = cluster.stopping(1)
        for _ in range(5):
            await cluster.clock.advance(100)
        owners = dict(cluster.led)
        cluster.stubborn[slow].set()
        await cluster.clock.advance(1_000)

        assert {member for name, member in owners if name in others} == {2}
        assert slow not in {name for name, _ in owners}
        assert cluster.owned == {2: 6}
        await stopping


@pytest.mark.parametrize("members", [(1,), (1, 2)], ids=["one", "two"])
async def test_shard_that_fails_everywhere_has_a_line_once_a_minute(
    members: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with open_cluster(*members) as cluster:
        cluster.poisoned.add("jobs-2")
        await cluster.controller.create_topic("jobs", partitions=4, kind="ownership", timeout_ms=0)

        for _ in range(180):
            await cluster.clock.advance(1_000)

        lines = [record.getMessage() for record in caplog.records if record.levelname != "DEBUG"]
        reported = [line for line in lines if "reports jobs-2: " in line]
        assert 3 <= len(reported) <= 5
        assert not [line for line in lines if "replicas do not serve" in line or "cannot become ONLINE" in line]
        cluster.poisoned.clear()
        await cluster.clock.advance(120_000)
        assert len([text for text in caplog.messages if re.match(r"jobs-2 works again: participant .", text)]) == 1
        assert [text for text in caplog.messages if "handler of jobs-2 has not failed again (" in text]
