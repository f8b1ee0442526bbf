"""Roles do not change the settings of the program that they run in."""

import asyncio
import logging
import signal
import threading
from pathlib import Path

import pytest
from opentelemetry import metrics, trace

import kactl
from kactl.participant.leases.terms import LeaseConfig

pytestmark = pytest.mark.anyio


class Leads(kactl.PartitionHandler):
    """Leads, without any work."""


def state_of_the_program() -> dict[str, object]:
    """Returns the settings that only the program itself may change."""
    ours, root = logging.getLogger("kactl"), logging.getLogger()
    return {
        "signals": [signal.getsignal(number) for number in sorted(signal.valid_signals())],
        "logging": [(logger.level, *logger.handlers, logger.propagate) for logger in (root, ours)],
        "policy": asyncio.get_event_loop_policy(),
        "telemetry": (trace.get_tracer_provider(), metrics.get_meter_provider()),
        "exceptions": asyncio.get_running_loop().get_exception_handler(),
    }


@pytest.mark.parametrize(
    ("kind", "watchdog", "started"),
    [("memory", "off", []), ("sqlite", "off", ["kactl-sqlite"]), ("memory", "thread", ["kactl watchdog"])],
)
async def test_roles_start_no_threads_and_configure_nothing(
    tmp_path: Path, kind: str, watchdog: str, started: list[str]
) -> None:
    before, running = state_of_the_program(), set(threading.enumerate())
    store: kactl.Store = kactl.MemoryStore() if kind == "memory" else kactl.SqliteStore(str(tmp_path / "cluster.db"))
    network = kactl.TcpNetwork(listen="127.0.0.1:0")

    async with kactl.Controller(100, store=store, network=network) as controller:
        await controller.wait_active()
        to_controller = kactl.TcpNetwork(controllers=[str(network.address)])
        lease = LeaseConfig(watchdog=watchdog)
        async with (
            kactl.Participant(1, network=to_controller, handler=Leads, lease=lease) as participant,
            kactl.Spectator(network=kactl.TcpNetwork(controllers=[str(network.address)])) as spectator,
        ):
            await participant.wait_linked()
            await spectator.wait_ready()
            await controller.create_topic("orders", assignment={0: [1]})

            threads = {thread.name.rpartition("_")[0] or thread.name for thread in set(threading.enumerate()) - running}
            assert threads == {*started, "kactl loop watch"}
            assert state_of_the_program() == before

    assert set(threading.enumerate()) <= running
    assert state_of_the_program() == before
