"""Drawn worlds: topology, protocol level, settings, latencies and the schedule of steps."""

import random
from typing import Any, Final

from kactl.testing.schedule import Schedule
from kactl.testing.script import BrokersSpec, LatencySpec, ScheduleSpec, WorldSpec

# Leaders write ISRs; leaders propose ISRs; topics have ids; leaders are told to recover.
LEVELS: Final = ("2.6", "2.7", "2.8", "3.9", "3.9")
# Latencies in ms of the store and of the network, as ranges.
_STORE: Final = ((0.5, 4.0), (0.5, 40.0), (0.0, 0.0), (5.0, 5.0))
_NETWORK: Final = ((0.5, 2.0), (0.5, 30.0), (0.0, 0.0), (1.0, 1.0))


def drawn_world(rng: random.Random) -> WorldSpec:
    """Draw 3 to 7 brokers and 2 or 3 controllers; each limit is the smallest legal one, the default, or in between."""
    settings: dict[str, Any] = {
        "session_timeout_ms": rng.choice((3_000, 6_000, 10_000)),
        "request_timeout_ms": rng.choice((1_000.0, 5_000.0)),
        "lag_ms": rng.choice((3_000.0, 10_000.0)),
        "append_rate": rng.choice((0.0, 2.0, 20.0)),
        "chunk_partitions": rng.choice((1, 2, 3, 4096)),
        "unclean_leader_election": rng.random() < 0.3,
        "shutdown_limit_ms": rng.choice((20_000, 600_000)),
        "balance_interval_ms": rng.choice((15_000, 300_000)),
        "balance_percentage": rng.choice((0, 10)),
        "standby_interval_ms": rng.choice((0, 200, 1_000)),
        "parity": rng.random() < 0.05,
    }
    return WorldSpec(
        store="memory",
        brokers=BrokersSpec(
            count=rng.choice((3, 4, 4, 5, 7)), level=rng.choice(LEVELS), racks=rng.choice((1, 1, 2, 3))
        ),
        controllers=rng.choice((2, 2, 3)),
        settings=settings,
    )


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
