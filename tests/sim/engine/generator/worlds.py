"""Drawn worlds: topology, protocol level, settings, latencies and the schedule of steps."""

import random
from typing import Any, Final, Literal

from kactl.config.controller_settings import CHUNK_PARTITIONS, SHUTDOWN_LIMIT_MS
from kactl.testing.schedule import Schedule
from tests.sim.engine.script import BrokersSpec, LatencySpec, ScheduleSpec, WorldSpec

# Leaders write ISRs; leaders propose ISRs; topics have ids; leaders are told to recover.
LEVELS: Final = ("2.6", "2.7", "2.8", "3.9", "3.9")
# Weights of the kinds of stores, in percent. In-memory runs are the cheapest.
Store = Literal["memory", "sqlite", "zookeeper"]
STORES: Final[dict[Store, int]] = {"memory": 55, "zookeeper": 30, "sqlite": 15}
# Share of the runs with LARGE_BROKERS brokers: one takes as long as thirty others.
LARGE: Final = 0.01
LARGE_BROKERS: Final = 12
# Shortest timeout of a request in large clusters. Their brokers propose ISRs at the same time, and the controller
# handles one request after another, each with a write of up to 160 ms. At 100 ms brokers repeat requests faster than
# the controller handles them, so that its inbox grows without end.
_LARGE_REQUEST_MS_MIN: Final = 1_000.0
# Latencies in ms of the store and of the network, as ranges.
_STORE: Final = ((0.5, 4.0), (0.5, 40.0), (0.0, 0.0), (5.0, 5.0))
_NETWORK: Final = ((0.5, 2.0), (0.5, 30.0), (0.0, 0.0), (1.0, 1.0))
# Share of the runs with kactl participants as brokers.
PARTICIPANTS: Final = 0.15


def drawn_kind(rng: random.Random) -> str:
    """Draw the kind of the brokers."""
    return "participant" if rng.random() < PARTICIPANTS else "model"


def drawn_store(rng: random.Random) -> Store:
    """Draw the kind of store."""
    return rng.choices(list(STORES), list(STORES.values()))[0]


def drawn_world(rng: random.Random, store: Store, *, large: bool) -> WorldSpec:
    """Draw a topology and the settings: each limit is the smallest useful one, the default, or in between.

    Args:
        large: draw so many brokers and partitions that requests are split and queues fill.
    """
    settings: dict[str, Any] = {
        "session_timeout_ms": rng.choice((3_000, 6_000, 10_000)),
        # Near the longest latencies, and the default.
        "request_timeout_ms": rng.choice((100.0, 1_000.0, 5_000.0)),
        "lag_ms": rng.choice((2_000.0, 3_000.0, 10_000.0)),
        "append_rate": rng.choice((0.0, 2.0, 20.0)),
        "chunk_partitions": rng.choice((1, 2, 3, CHUNK_PARTITIONS)),
        "unclean_leader_election": rng.random() < 0.3,
        "shutdown_limit_ms": rng.choice((100, 20_000, 20_000, SHUTDOWN_LIMIT_MS)),
        "balance_interval_ms": rng.choice((100, 15_000, 300_000)),
        "balance_percentage": rng.choice((0, 10)),
        "standby_interval_ms": rng.choice((0, 20, 200, 1_000)),
        "parity": rng.random() < 0.05,
    }
    if large:
        settings["request_timeout_ms"] = max(settings["request_timeout_ms"], _LARGE_REQUEST_MS_MIN)
    count = LARGE_BROKERS if large else rng.choice((3, 4, 4, 5, 7))
    return WorldSpec(
        store=store,
        brokers=BrokersSpec(count=count, level=rng.choice(LEVELS), racks=rng.choice((1, 1, 2, 3))),
        # A single instance shows what only the next one would repair.
        controllers=rng.choice((1, 2, 2, 2, 2, 2, 3, 3)),
        settings=settings,
    )


def draw_participants(rng: random.Random, world: WorldSpec) -> None:
    """Draw where the participants of a world register, and whether they keep links to the controller."""
    brokers = world.brokers
    brokers.kind = "participant"
    oldest = brokers.level == "2.6"
    if oldest:
        brokers.level = "2.7"  # participants propose their ISRs, as brokers do from 2.7 on
    brokers.sessions = "store" if oldest else rng.choice(("store", "controller", "controller", "mixed"))
    brokers.handlers = rng.random() < 0.6
    world.spectators = rng.choice((0, 0, 1))
    brokers.links = brokers.sessions != "store" or rng.random() < 0.7
    if not brokers.links:
        world.spectators = 0


def calm_down(rng: random.Random, world: WorldSpec) -> None:
    """Draw instances and intervals of a long run as clusters have them: at shorter ones it consists of nothing else."""
    world.controllers = max(2, world.controllers)
    world.settings["standby_interval_ms"] = rng.choice((0, 1_000))
    world.settings["balance_interval_ms"] = rng.choice((15_000, 60_000, 300_000))
    if world.store == "sqlite":
        world.settings["poll_ms"] = 500.0


def drawn_latency(rng: random.Random) -> LatencySpec:
    return LatencySpec(store_ms=rng.choice(_STORE), network_ms=rng.choice(_NETWORK))


def drawn_schedule(rng: random.Random, seed: int) -> ScheduleSpec:
    drawn = Schedule.drawn(rng)
    return ScheduleSpec(
        strategy=drawn.strategy,  # type: ignore[arg-type]
        hold_back=drawn.hold_back,
        changes=drawn.changes,
        grid_ms=drawn.grid_ms,
        seed=seed,
    )
