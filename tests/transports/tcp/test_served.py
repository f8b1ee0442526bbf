"""Controllers of another store than the one that has served: of a copy, or of another cluster."""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest

import kactl
from kactl.decide.machines.remote_sessions import NS_PER_MS
from kactl.model import NO_EPOCH
from kactl.testing.contracts.link_support import until
from kactl.transports.tcp.served import Served, Term
from tests.support.clocks import ManualClock
from tests.support.processes import free_port

PATIENCE_S = 60
SESSION_MS = 3_000
HOUR_MS = 3_600_000


class History:
    """A program that has been granted leases of 9 s for a minute, by a controller that has been active for an hour."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.served = Served(self.clock)
        self.original = self.term("100", active_ms=HOUR_MS)

    def term(self, controller: str, *, epoch: int = 7, active_ms: int, handshake_ms: int = 1) -> Term:
        """Returns a controllership that welcomes the program now."""
        now_ns = self.clock.lease_ns()
        return Term(controller, epoch, now_ns - handshake_ms * NS_PER_MS, now_ns, active_ms)

    async def grant(self) -> None:
        self.served.granted(self.original, timeout_ms=9_000, sent_ns=self.clock.lease_ns())


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("controller", "epoch", "active_ms", "is_foreign"),
    [
        ("101", 8, 5_000, False),  # elected after the last grant
        ("101", 8, 12_900, False),  # before it: a check of the controllership may have been under way for T/3
        ("101", 8, 14_000, True),
        ("101", 7, HOUR_MS, True),  # of two clusters, both in their seventh epoch
        ("100", 8, HOUR_MS, True),
        ("100", 7, HOUR_MS + 10_000, False),  # the same one
        ("100", 7, 2 * HOUR_MS, True),  # of the same id, in the same epoch
        ("101", NO_EPOCH, HOUR_MS, False),  # an earlier version, which does not send it
    ],
)
async def test_controllership_that_is_older_than_a_grant_is_foreign(
    controller: str, epoch: int, active_ms: int, *, is_foreign: bool
) -> None:
    history = History()
    await history.grant()
    await history.clock.advance(10_000)

    reason = history.served.why_foreign(history.term(controller, epoch=epoch, active_ms=active_ms))

    assert bool(reason) == is_foreign


@pytest.mark.anyio
async def test_foreign_controller_stays_foreign() -> None:
    history = History()
    await history.grant()
    await history.clock.advance(1_000)
    assert history.served.why_foreign(history.term("101", active_ms=20_000))

    await history.clock.advance(100 * HOUR_MS)

    assert history.served.why_foreign(history.term("101", active_ms=20_000 + 100 * HOUR_MS))


@pytest.mark.anyio
async def test_successor_is_accepted_when_the_clock_of_a_suspended_machine_is_right_again() -> None:
    history = History()
    await history.grant()
    await history.clock.advance(1_000)  # and the machine stood still for an hour, in which 101 was elected
    successor = history.term("101", epoch=8, active_ms=HOUR_MS // 2)
    assert history.served.why_foreign(successor)

    history.clock.step_ms = HOUR_MS

    assert not history.served.why_foreign(successor)


@asynccontextmanager
async def controller(node: int, file: Path, address: str) -> AsyncIterator[kactl.Controller]:
    store = kactl.SqliteStore(str(file), session_timeout_ms=5_000)
    async with kactl.Controller(node, store=store, network=kactl.TcpNetwork(listen=address)) as running:
        await running.wait_active()
        yield running


@pytest.mark.anyio
@pytest.mark.parametrize("sessions", ["controller", "store"])
async def test_participant_does_not_continue_at_the_controller_of_another_store(
    sessions: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    own, other = (f"127.0.0.1:{free_port()}" for _ in range(2))
    store = kactl.SqliteStore(str(tmp_path / "own.db")) if sessions == "store" else None
    network = kactl.TcpNetwork(controllers=[own, other])
    with anyio.fail_after(PATIENCE_S):
        async with AsyncExitStack() as first, AsyncExitStack() as participants:
            serving = await first.enter_async_context(controller(100, tmp_path / "own.db", own))
            participant = kactl.Participant(1, store=store, network=network, session_timeout_ms=SESSION_MS)
            await participants.enter_async_context(participant)
            await participant.wait_linked()
            async with controller(101, tmp_path / "other.db", other) as foreign:
                # It is active while the first one grants leases. Of two more grants, one was also requested since.
                await until(lambda: foreign.active_term()[1] > SESSION_MS / 2)
                granted = serving.sessions.heartbeats["granted"] + (2 if sessions == "controller" else 0)
                await until(lambda: serving.sessions.heartbeats["granted"] >= granted)
                await first.aclose()

                await until(lambda: "broker 1 refuses a link: controller 101 " in caplog.text)

                assert "they use different stores" in caplog.text
                async with controller(102, tmp_path / "own.db", own) as successor:
                    await until(lambda: 1 in successor.cluster.brokers and not successor.cluster.fenced)
                    await participant.wait_linked()
                    assert not foreign.cluster.brokers
                    await participants.aclose()
