"""Complex elections: unclean ones, races with partition leaders, and stores that do not respond."""

from collections.abc import Awaitable, Callable

import pytest

from kactl.decide.machines.election import Election
from kactl.decide.state.change import Refusal
from kactl.model import PartitionState
from kactl.model.errors import StoreError, StoreUnavailable
from tests.support.cluster_seeds import EPOCH, led
from tests.support.machine_harness import Machines, SentLead, open_machines, refusals_of
from tests.support.scripted_store import Step, after, fails, fails_after, fails_between, returns

pytestmark = pytest.mark.anyio

NEW, ONLINE, OFFLINE, ABSENT = PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE, PartitionState.ABSENT
MADE = Refusal.NONE


# -- unclean elections -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "default", "elected"),
    [(None, False, False), (None, True, True), ("true", False, True), (" True ", False, True), ("false", True, False)],
)
async def test_topic_config_allows_unclean_elections(override: str | None, default: bool, elected: bool) -> None:
    async with open_machines(unclean_default=default) as bench:
        bench.live(5)
        await bench.put("t-0", [6, 5], OFFLINE, stored=led(6, 0, [6], 0))
        if override is not None:
            await bench.store.real.set_topic_config("t", {"unclean.leader.election.enable": override})

        moved = await bench.move("t-0", ONLINE, Election.OFFLINE)

        assert moved.elected.tolist() == [elected]
        assert bench.store.config_reads == [["t"]]
        assert bench.partitions.unclean_elections == elected


async def test_unreadable_topic_config_rejects_its_topic_only(bench: Machines) -> None:
    bench.live(5)
    for name in ("a-0", "b-0"):
        await bench.put(name, [6, 5], OFFLINE, stored=led(6, 0, [6], 0))
        await bench.store.real.set_topic_config(name[0], {"unclean.leader.election.enable": "true"})
    await bench.put("c-0", [5], OFFLINE, stored=led(-1, 0, [5], 0))
    bench.store.next("topic_configs", returns(lambda answer, topics: answer | {"a": None}))

    moved = await bench.move(["a-0", "b-0", "c-0"], ONLINE, Election.OFFLINE)

    assert refusals_of(moved) == [Refusal.CONFIG_UNREADABLE, MADE, MADE]
    assert bench.store.config_reads == [["a", "b"]]


async def test_clean_elections_succeed_without_readable_configs(bench: Machines) -> None:
    bench.live(5)
    await bench.put("a-0", [6, 5], OFFLINE, stored=led(6, 0, [6], 0))
    await bench.put("c-0", [5], OFFLINE, stored=led(-1, 0, [5], 0))
    bench.store.next("topic_configs", fails(StoreUnavailable("gone")))

    moved = await bench.move(["a-0", "c-0"], ONLINE, Election.OFFLINE)

    assert refusals_of(moved) == [Refusal.CONFIG_UNREADABLE, MADE]


async def test_repeated_unclean_election_is_counted_again(bench: Machines) -> None:
    bench.live(5)
    await bench.put("t-0", [6, 5], OFFLINE, stored=led(6, 0, [6], 1), known=led(6, 0, [6], 0))

    await bench.move("t-0", ONLINE, Election.UNCLEAN)

    assert bench.partitions.unclean_elections == 2
    assert await bench.stored("t-0") == led(5, 1, [5], 2, recovering=True)


# -- concurrent writes by leaders --------------------------------------------------------------------------------------


async def test_member_added_unnoticed_by_the_dead_leader_is_elected(bench: Machines) -> None:
    """The known ISR has no electable member, the stored one has."""
    bench.live(6)
    await bench.put("t-0", [5, 6], OFFLINE, stored=led(5, 0, [5, 6], 1), known=led(5, 0, [5], 0))

    moved = await bench.move("t-0", ONLINE, Election.OFFLINE)

    assert moved.elected.tolist() == [True]
    assert await bench.stored("t-0") == bench.leadership("t-0") == led(6, 1, [6], 2)


async def test_no_unclean_election_while_an_unnoticed_member_is_in_sync() -> None:
    async with open_machines(unclean_default=True) as bench:
        bench.live(6, 7)
        await bench.put("t-0", [5, 7, 6], OFFLINE, stored=led(5, 0, [5, 6], 1), known=led(5, 0, [5], 0))

        await bench.move("t-0", ONLINE, Election.OFFLINE)

        assert await bench.stored("t-0") == led(6, 1, [6], 2)


async def test_rows_without_a_candidate_are_read_once(bench: Machines) -> None:
    bench.live(5)
    await bench.put("a-0", [6], OFFLINE, stored=led(-1, 0, [6], 0))
    await bench.put("b-0", [5], OFFLINE, stored=led(-1, 0, [5], 0))

    moved = await bench.move(["a-0", "b-0"], ONLINE, Election.OFFLINE)

    assert refusals_of(moved) == [Refusal.NO_ELIGIBLE_LEADER, MADE]
    assert bench.store.reads == [["a-0"]]
    assert bench.store.config_reads == [["a"]]
    assert [len(rows) for rows in bench.store.commits] == [1]


async def test_rows_already_read_are_not_read_again(bench: Machines) -> None:
    bench.live(5)
    await bench.put("t-0", [6], OFFLINE, stored=led(-1, 0, [6], 0), known=None)

    moved = await bench.move("t-0", ONLINE, Election.OFFLINE)

    assert refusals_of(moved) == [Refusal.NO_ELIGIBLE_LEADER]
    assert bench.store.reads == [["t-0"]]
    assert bench.leadership("t-0") is None


async def test_rejected_row_without_a_candidate_is_not_read_twice(bench: Machines) -> None:
    bench.live(5)
    await bench.put("t-0", [6, 5], OFFLINE, stored=led(6, 0, [6], 1), known=led(6, 0, [6, 5], 0))

    moved = await bench.move("t-0", ONLINE, Election.OFFLINE)

    assert refusals_of(moved) == [Refusal.NO_ELIGIBLE_LEADER]
    assert bench.store.reads == [["t-0"]]


async def test_stored_unassigned_member_widens_the_rows_during_a_call(
    bench: Machines,
) -> None:
    """An ISR member outside the assignment stays in the ISR while it is online, and never leads."""
    bench.live(5, 6, 7, 8, 9)
    await bench.put("t-0", [5, 6], OFFLINE, stored=led(-1, 0, [5, 6], 0))
    await bench.put("t-1", [5, 6], OFFLINE, stored=led(-1, 0, [9, 8, 7, 6], 4), known=led(-1, 0, [6], 2))
    await bench.put("t-2", [5, 6], OFFLINE, stored=led(-1, 0, [7], 2), known=led(-1, 0, [5], 0))
    names = ["t-0", "t-1", "t-2"]

    moved = await bench.move(names, ONLINE, Election.OFFLINE)

    assert refusals_of(moved) == [MADE, MADE, Refusal.NO_ELIGIBLE_LEADER]
    assert bench.leadership("t-0") == await bench.stored("t-0") == led(5, 1, [5, 6], 1)
    known = bench.leadership("t-1")
    assert known == await bench.stored("t-1")
    assert known is not None
    assert (known.leader, set(known.isr)) == (6, {6, 7, 8, 9})
    assert bench.view("t-1").replicas == (5, 6)
    assert bench.sent.lead[6]["t-0"].isr == (5, 6)
    assert set(bench.sent.lead[6]["t-1"].isr) == {6, 7, 8, 9}
    assert 7 not in bench.sent.lead
    assert set(bench.sent.metadata[9]["t-1"].isr) == {6, 7, 8, 9}


async def test_unassigned_member_in_an_unread_row_widens_known_rows(bench: Machines) -> None:
    bench.live(5, 6, 7)
    await bench.put("t-0", [5, 6, 7], OFFLINE, stored=led(-1, 0, [5, 6], 0))
    await bench.put("t-1", [5, 6, 7], OFFLINE, stored=led(-1, 3, [1, 2, 3, 6], 5, recovering=True), known=None)

    moved = await bench.move(["t-0", "t-1"], ONLINE, Election.OFFLINE)

    assert refusals_of(moved) == [MADE, MADE]
    assert bench.leadership("t-0") == await bench.stored("t-0") == led(5, 1, [5, 6], 1)
    assert bench.leadership("t-1") == await bench.stored("t-1") == led(6, 4, [6], 6, recovering=True)


async def test_imbalance_counter_follows_a_reloaded_row(bench: Machines) -> None:
    bench.live(5, 6)
    await bench.put("t-0", [5, 6], ONLINE, stored=led(6, 1, [5, 6], 1), known=led(5, 0, [5, 6], 0))
    before = bench.cluster.imbalance_count

    await bench.move("t-0", ONLINE, Election.PREFERRED)

    assert (before, bench.cluster.imbalance_count) == (0, 0)


async def test_constantly_changing_row_fails_after_a_number_of_rounds(
    bench: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kactl.actors.machines.commit.ROUNDS_MAX", 3)
    bench.live(5)
    await bench.put("t-0", [5], ONLINE, stored=led(5, 0, [5], 0))
    await bench.put("t-1", [5], ONLINE, stored=led(5, 0, [5], 0))

    def restless(version: int) -> Callable[[], Awaitable[None]]:
        return lambda: bench.leader_writes("t-0", led(5, 0, [5], version + 1), expected=version)

    bench.store.next("commit", *(after(restless(version)) for version in range(3)))

    moved = await bench.move(["t-0", "t-1"], ONLINE, Election.PREFERRED)

    assert refusals_of(moved) == [Refusal.STORE_FAILED, MADE]
    assert len(bench.store.commits) == 3
    assert bench.sent.lead[5].keys() == {"t-1"}


# -- unknown outcomes --------------------------------------------------------------------------------------------------


async def test_first_leader_with_a_lost_response_is_found(bench: Machines) -> None:
    bench.live(5)
    await bench.put("t-0", [5], NEW)
    bench.store.next("commit", fails_after(StoreUnavailable("gone")))

    moved = await bench.move("t-0", ONLINE)

    assert refusals_of(moved) == [MADE]
    assert bench.leadership("t-0") == await bench.stored("t-0") == led(5, 0, [5], 0)
    assert bench.sent.lead == {5: {"t-0": SentLead(5, 0, (5,), 0, (5,), is_new=True)}}


async def test_foreign_first_leader_is_kept(bench: Machines) -> None:
    bench.live(5, 6)
    await bench.put("t-0", [5, 6], NEW)

    async def other() -> None:
        await bench.seed("t-0", led(6, 0, [6], 1, by=EPOCH - 1))

    bench.store.next("commit", after(other, then=fails(StoreUnavailable("gone"))))

    moved = await bench.move("t-0", ONLINE)

    assert refusals_of(moved) == [Refusal.STATE_EXISTS]
    assert bench.state("t-0") == NEW
    assert bench.sent.requests == []


async def test_unknown_outcome_is_resolved_per_row(
    bench: Machines,
) -> None:
    bench.live(5, 6)
    for name in ("kept-0", "lost-0", "other-0"):
        await bench.put(name, [5, 6], ONLINE, stored=led(6, 3, [5, 6], 4))

    async def other() -> None:
        await bench.leader_writes("other-0", led(6, 3, [6], 5), expected=4)
        await bench.leader_writes("other-0", led(6, 3, [5, 6], 6), expected=5)

    bench.store.next("commit", after(other, then=fails_between(StoreUnavailable("gone"), "kept-0")))
    names = ["kept-0", "lost-0", "other-0"]

    moved = await bench.move(names, ONLINE, Election.PREFERRED)

    assert refusals_of(moved) == [MADE, Refusal.STORE_FAILED, MADE]
    assert bench.leadership("kept-0") == await bench.stored("kept-0") == led(5, 4, [5, 6], 5)
    assert bench.leadership("lost-0") == await bench.stored("lost-0") == led(6, 3, [5, 6], 4)
    assert bench.leadership("other-0") == await bench.stored("other-0") == led(5, 4, [5, 6], 7)
    assert bench.store.reads == [names, ["other-0"]]
    assert bench.sent.lead[5].keys() == {"kept-0", "other-0"}


@pytest.mark.parametrize("step", [fails, fails_after], ids=["nothing was written", "it was written"])
async def test_unresolved_outcome_fails_the_row_until_the_next_call(
    bench: Machines, step: Callable[[Exception], Step]
) -> None:
    bench.live(5)
    await bench.put("t-0", [5], ONLINE, stored=led(5, 3, [5], 4))
    bench.store.next("commit", step(StoreUnavailable("gone")))
    bench.store.next("leaderships", fails(StoreUnavailable("still gone")))

    first = await bench.move("t-0", ONLINE, Election.PREFERRED)
    unsent = bench.sent_nothing()
    second = await bench.move("t-0", ONLINE, Election.PREFERRED)

    assert refusals_of(first) == [Refusal.STORE_FAILED]
    assert unsent
    assert refusals_of(second) == [MADE]
    assert bench.leadership("t-0") == await bench.stored("t-0")


async def test_failed_call_without_writes_is_not_read_back(bench: Machines) -> None:
    bench.live(5)
    await bench.put("t-0", [5], ONLINE, stored=led(5, 3, [5], 4))
    bench.store.next("commit", fails(StoreError("refused")))

    moved = await bench.move("t-0", ONLINE, Election.PREFERRED)

    assert refusals_of(moved) == [Refusal.STORE_FAILED]
    assert bench.store.reads == []


async def test_elections_before_a_store_failure_are_kept_and_sent(bench: Machines) -> None:
    bench.live(5)
    await bench.put("new-0", [5], NEW)
    await bench.put("ours-0", [5], OFFLINE, stored=led(-1, 0, [5], 0))
    await bench.put("raced-0", [5], OFFLINE, stored=led(-1, 0, [5], 1), known=led(-1, 0, [5], 0))
    bench.store.next("leaderships", fails(StoreUnavailable("gone")))

    moved = await bench.move(["new-0", "ours-0", "raced-0"], ONLINE, Election.OFFLINE)

    assert refusals_of(moved) == [MADE, MADE, Refusal.STORE_FAILED]
    assert moved.elected.tolist() == [False, True, False]
    assert bench.sent.lead[5].keys() == {"new-0", "ours-0"}
