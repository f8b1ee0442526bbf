"""Brokers that leave ISRs: results, races with partition leaders, and stores that do not respond."""

from collections.abc import Awaitable, Callable

import pytest

from kactl.model import Leadership, PartitionState, ReplicaState
from kactl.model.errors import StoreUnavailable
from kactl.stores.base import Found
from tests.support.cluster_seeds import EPOCH, led
from tests.support.machine_harness import Machines, SentLead, SentState
from tests.support.scripted_store import (
    Step,
    WriteCall,
    after,
    fails,
    fails_after,
    fails_between,
    really,
    rejects,
    returns,
    with_status,
)

pytestmark = pytest.mark.anyio

S = ReplicaState
NEW, ONLINE, OFFLINE, ABSENT = S.NEW, S.ONLINE, S.OFFLINE, S.ABSENT
STARTED, SUCCESSFUL, INELIGIBLE = S.DELETION_STARTED, S.DELETION_SUCCESSFUL, S.DELETION_INELIGIBLE
LED = PartitionState.ONLINE


# -- leaving the ISR ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "broker", "left"),
    [
        pytest.param(led(1, 3, [1, 2, 3], 5), 2, led(1, 4, [1, 3], 6), marks=pytest.mark.scenario(149)),
        pytest.param(led(1, 3, [1, 2], 5), 1, led(-1, 4, [2], 6), marks=pytest.mark.scenario(150)),
        pytest.param(led(1, 3, [1], 5), 1, led(-1, 4, [1], 6), marks=pytest.mark.scenario(151)),
        pytest.param(led(-1, 4, [1], 6), 1, led(-1, 5, [1], 7), marks=pytest.mark.scenario(152)),
        pytest.param(
            led(2, 3, [2], 5, recovering=True),
            2,
            led(-1, 4, [2], 6, recovering=True),
            marks=pytest.mark.scenario(153),
        ),
        pytest.param(led(2, 3, [2], 5, by=49), 1, led(2, 3, [2], 5, by=49), marks=pytest.mark.scenario(154)),
        pytest.param(led(1, 3, [], 5, by=49), 1, led(1, 3, [], 5, by=49), marks=pytest.mark.scenario(155)),
    ],
)
async def test_leadership_after_a_broker_leaves_the_isr(
    bench: Machines, stored: Leadership, broker: int, left: Leadership
) -> None:
    """Without a write the leadership is adopted unchanged, under our controller epoch."""
    bench.live(1, 2, 3)
    await bench.put("t-0", [1, 2, 3], LED, stored=stored)

    await bench.move_replicas("t-0", OFFLINE, broker)

    written = [] if left == stored else [
        [WriteCall("t-0", left.leader, left.leader_epoch, left.isr, stored.partition_epoch, stored.recovering)]
    ]  # fmt: skip
    assert bench.store.commits == written
    assert await bench.stored("t-0") == left
    assert bench.leadership("t-0") == Leadership(
        left.leader, left.leader_epoch, left.isr, left.partition_epoch, EPOCH, left.recovering
    )
    assert bench.replica("t-0", broker) == OFFLINE


@pytest.mark.scenario(156)
async def test_broker_removed_by_the_leader_needs_no_second_write(bench: Machines) -> None:
    bench.live(1, 2)
    await bench.put(
        "t-0", [1, 2], LED, stored=led(1, 3, [1], 6), known=led(1, 3, [1, 2], 5, recovering=True)
    )  # fmt: skip

    await bench.move_replicas("t-0", OFFLINE, 2)

    assert len(bench.store.commits) == 1
    assert bench.store.reads == [["t-0"]]
    assert bench.leadership("t-0") == await bench.stored("t-0") == led(1, 3, [1], 6)
    assert bench.sent.lead == {1: {"t-0": SentLead(1, 3, (1,), 6, (1, 2))}}
    assert bench.replica("t-0", 2) == OFFLINE


@pytest.mark.scenario(157)
async def test_leadership_of_a_later_controller_is_kept(bench: Machines, caplog: pytest.LogCaptureFixture) -> None:
    bench.live(1, 2)
    theirs, ours = led(1, 4, [1, 2], 6, by=51), led(1, 3, [1, 2], 5)
    await bench.put("t-0", [1, 2], LED, stored=theirs, known=ours)

    await bench.move_replicas("t-0", OFFLINE, 2)

    assert await bench.stored("t-0") == theirs
    assert bench.leadership("t-0") == ours
    assert bench.replica("t-0", 2) == ONLINE
    assert bench.sent.lead == {}
    assert "cannot become OFFLINE: LATER_CONTROLLER; the first: t-0" in caplog.text


@pytest.mark.parametrize("status", [Found.UNREADABLE, Found.MISSING], ids=lambda each: each.name)
@pytest.mark.parametrize(
    "queued",
    [
        pytest.param(False, marks=pytest.mark.scenario(158)),
        pytest.param(True, marks=pytest.mark.scenario(159)),
    ],
)
async def test_unreadable_leadership_fails_except_in_deletion(
    bench: Machines, caplog: pytest.LogCaptureFixture, queued: bool, status: Found
) -> None:
    bench.live(1, 2)
    await bench.put("t-0", [1, 2], LED, stored=led(1, 3, [1, 2], 6), known=led(1, 3, [1, 2], 5))
    bench.store.next("leaderships", returns(with_status(status, "t-0")))
    if queued:
        bench.cluster.queue_deletion(["t"])

    await bench.move_replicas("t-0", OFFLINE, 2)

    assert bench.replica("t-0", 2) == ONLINE
    assert ("NO_LEADERSHIP" in caplog.text) == (not queued)


@pytest.mark.scenario(160)
async def test_failed_read_fails_all_rows_to_read(bench: Machines, caplog: pytest.LogCaptureFixture) -> None:
    bench.live(1, 2)
    for name in ("t-0", "t-1"):
        await bench.put(name, [1, 2], LED, stored=led(1, 3, [1, 2], 6), known=led(1, 3, [1, 2], 5))
    await bench.put("t-2", [1, 2], LED, stored=led(1, 3, [1, 2], 6))
    bench.store.next("leaderships", fails(StoreUnavailable("gone")))

    await bench.move_replicas(["t-0", "t-1", "t-2"], OFFLINE, 2)

    assert [bench.replica(f"t-{number}", 2) for number in range(3)] == [ONLINE, ONLINE, OFFLINE]
    assert "2 replicas cannot become OFFLINE: STORE_FAILED; the first: t-0" in caplog.text
    assert bench.sent.stop[2].keys() == {"t-0", "t-1", "t-2"}
    assert bench.sent.lead[1].keys() == {"t-2"}


@pytest.mark.scenario(161)
async def test_failed_write_fails_its_row_only(bench: Machines, caplog: pytest.LogCaptureFixture) -> None:
    bench.live(1, 2)
    for name in ("t-0", "t-1"):
        await bench.put(name, [1, 2], LED, stored=led(1, 3, [1, 2], 5))
    bench.store.next("commit", rejects("t-1"))

    await bench.move_replicas(["t-0", "t-1"], OFFLINE, 2)

    assert (bench.replica("t-0", 2), bench.replica("t-1", 2)) == (OFFLINE, ONLINE)
    assert bench.leadership("t-1") == led(1, 3, [1, 2], 5)
    assert bench.sent.lead[1].keys() == {"t-0"}
    assert "STORE_FAILED; the first: t-1" in caplog.text


async def test_constantly_changing_row_fails_after_a_number_of_rounds(
    bench: Machines, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kactl.actors.machines.commit.ROUNDS_MAX", 3)
    bench.live(1, 2)
    await bench.put("t-0", [1, 2], LED, stored=led(1, 3, [1, 2], 0))

    def restless(version: int) -> Callable[[], Awaitable[None]]:
        return lambda: bench.leader_writes("t-0", led(1, 3, [1, 2], version + 1), expected=version)

    bench.store.next("commit", *(after(restless(version)) for version in range(3)))

    await bench.move_replicas("t-0", OFFLINE, 2)

    assert len(bench.store.commits) == 3
    assert bench.replica("t-0", 2) == ONLINE
    assert "STORE_FAILED" in caplog.text


async def test_several_brokers_go_offline_with_concurrent_leader_writes(bench: Machines) -> None:
    """Each broker is removed by its own write; a concurrent write of the leader is read, and the next plan starts
    from it."""
    bench.live(3, 4)
    for name in ("t-0", "t-1"):
        await bench.put(name, [1, 2, 3, 4], LED, stored=led(3, 7, [1, 2, 3], 0))

    async def leader_lets_4_in() -> None:
        await bench.leader_writes("t-0", led(3, 7, [1, 2, 3, 4], 1), expected=0)

    async def leader_drops_2() -> None:
        await bench.leader_writes("t-0", led(3, 8, [3, 4], 3), expected=2)

    # Broker 1: rejected, then committed. Broker 2: rejected, then no write needed.
    bench.store.next("commit", after(leader_lets_4_in), really, after(leader_drops_2))

    await bench.move_replicas(["t-0", "t-1"], OFFLINE, 1, 2)

    assert bench.store.reads == [["t-0"], ["t-0"]]
    assert bench.leadership("t-0") == await bench.stored("t-0") == led(3, 8, [3, 4], 3)
    assert bench.leadership("t-1") == await bench.stored("t-1") == led(3, 9, [3], 2)
    told = {"t-0": SentLead(3, 8, (3, 4), 3, (1, 2, 3, 4)), "t-1": SentLead(3, 9, (3,), 2, (1, 2, 3, 4))}
    assert bench.sent.lead == {3: told, 4: told}
    assert [bench.replica(name, broker) for name in ("t-0", "t-1") for broker in (1, 2)] == [OFFLINE] * 4


async def test_stored_unassigned_member_widens_the_rows_during_a_call(
    bench: Machines,
) -> None:
    bench.live(3)
    await bench.put("t-0", [1, 2, 3], LED, stored=led(3, 7, [1, 2, 3], 0))
    await bench.put("t-1", [1, 2, 3], LED, stored=led(3, 7, [1, 2, 3, 8, 9], 1), known=led(3, 7, [1, 2, 3], 0))
    narrow = bench.cluster.table.width

    await bench.move_replicas(["t-0", "t-1"], OFFLINE, 1, 2)

    assert bench.cluster.table.width > narrow
    assert bench.leadership("t-0") == await bench.stored("t-0") == led(3, 9, [3], 2)
    assert bench.leadership("t-1") == await bench.stored("t-1") == led(3, 9, [3, 8, 9], 3)
    assert bench.view("t-1").replicas == (1, 2, 3)
    assert bench.sent.lead[3]["t-1"] == SentLead(3, 9, (3, 8, 9), 3, (1, 2, 3))
    assert bench.sent.metadata[3]["t-0"] == SentState(3, 9, (3,), 2, offline=(1, 2))


async def test_member_added_unnoticed_is_not_removed(bench: Machines) -> None:
    """The cluster state does not have it in sync, so that nothing is written; its leader removes it when it lags."""
    bench.live(1, 2)
    stored = led(1, 3, [1, 2], 6)
    await bench.put("t-0", [1, 2], LED, stored=stored, known=led(1, 3, [1], 5))

    await bench.move_replicas("t-0", OFFLINE, 2)

    assert bench.store.calls == []
    assert await bench.stored("t-0") == stored
    assert bench.replica("t-0", 2) == OFFLINE


# -- calls whose outcome is unknown ------------------------------------------------------------------------------------


async def test_unknown_outcome_is_resolved_per_row(
    bench: Machines,
) -> None:
    bench.live(5, 6)
    names = ["kept-0", "lost-0", "other-0"]
    for name in names:
        await bench.put(name, [5, 6], LED, stored=led(6, 3, [5, 6], 0))

    async def other() -> None:
        await bench.leader_writes("other-0", led(6, 3, [6], 1), expected=0)
        await bench.leader_writes("other-0", led(6, 3, [5, 6], 2), expected=1)

    bench.store.next("commit", after(other, then=fails_between(StoreUnavailable("gone"), "kept-0")))

    await bench.move_replicas(names, OFFLINE, 5)

    assert [bench.replica(name, 5) for name in names] == [OFFLINE, ONLINE, OFFLINE]
    assert bench.leadership("kept-0") == await bench.stored("kept-0") == led(6, 4, [6], 1)
    assert bench.leadership("lost-0") == await bench.stored("lost-0") == led(6, 3, [5, 6], 0)
    assert bench.leadership("other-0") == await bench.stored("other-0") == led(6, 4, [6], 3)
    assert bench.sent.lead[6].keys() == {"kept-0", "other-0"}


@pytest.mark.parametrize("step", [fails, fails_after], ids=["nothing was written", "it was written"])
async def test_unresolved_outcome_fails_the_row_until_the_next_call(
    bench: Machines, step: Callable[[Exception], Step]
) -> None:
    bench.live(5, 6)
    await bench.put("t-0", [5, 6], LED, stored=led(6, 3, [5, 6], 0))
    bench.store.next("commit", step(StoreUnavailable("gone")))
    bench.store.next("leaderships", fails(StoreUnavailable("still gone")))

    await bench.move_replicas("t-0", OFFLINE, 5)
    first = bench.replica("t-0", 5)
    await bench.move_replicas("t-0", OFFLINE, 5)

    assert (first, bench.replica("t-0", 5)) == (ONLINE, OFFLINE)
    assert bench.leadership("t-0") == await bench.stored("t-0") == led(6, 4, [6], 1)
