"""Generator: a seed becomes a complete script before the run.

    seed ── world ── pace ── swarm of faults ── schedules ── workload ── sequences ──▶ script

Each part draws from a stream of its own. Targets are selectors, so that any subset of a script is a valid script.
Some short runs consist of sequences alone: they cost little, and no other fault repairs what a sequence leaves behind.
"""

from collections.abc import Iterable
from typing import Final

from kactl.testing.streams import Streams
from tests.sim.engine.script import Action, LivenessSpec, Script

from .faults import failing_calls, faults, loss
from .operations import operations
from .owners import draw_owners, ownership
from .pace import drawn_pace
from .participants import participant_faults
from .workload import created_again, last_requests, workload
from .worlds import (
    LARGE,
    Store,
    calm_down,
    draw_participants,
    drawn_kind,
    drawn_latency,
    drawn_schedule,
    drawn_store,
    drawn_world,
)

__all__ = ["script_of_seed"]

# Share of the dense runs that consist of sequences of requests alone.
ALONE: Final = 0.25
# Share of the runs with participants that have ownership topics.
OWNERS: Final = 0.3
_ALONE_MS_MAX: Final = 48_000.0
# A broker that fails in the last ms of a run may stay down.
_LAST_MS: Final = 15_000.0


def script_of_seed(seed: int, store: Store | None = None, *, brokers: str = "", calm: bool = True) -> Script:
    """Returns the script of a seed.

    Args:
        store: kind of the store, in place of the one that the seed draws. Brokers are modelled then.
        brokers: kind of the brokers, in place of the one that the seed draws; empty for that one. Participants are
            drawn with the memory store. `ownership` stands for participants with ownership topics.
        calm: whether the run may be a long and calm one; see `pace`.
    """
    streams = Streams(seed)
    rng = streams["script"]
    is_large = streams["size"].random() < LARGE
    kind = brokers or ("model" if store is not None else drawn_kind(streams["brokers"]))
    has_owners = kind == "ownership" or (kind == "participant" and streams["owners"].random() < OWNERS)
    kind = "participant" if has_owners else kind
    if store is None:
        store = "memory" if kind == "participant" else drawn_store(streams["store"])
    world = drawn_world(streams["world"], store, large=is_large)
    if kind == "participant":
        draw_participants(streams["participants"], world)
        if has_owners:
            draw_owners(streams["owners"], world)
    pace = drawn_pace(streams["pace"], rng, large=is_large, calm=calm)
    if pace.is_calm:
        calm_down(streams["pace"], world)
    duration_ms = pace.minutes * 60_000.0
    is_alone = not (is_large or pace.is_calm) and streams["alone"].random() < ALONE
    swarm: dict[str, str] = {}
    if is_alone:
        duration_ms = min(duration_ms, _ALONE_MS_MAX)
        # Its first topics only.
        actions = workload(streams["workload"], world, 0.0, pace.rates)
    else:
        swarm, actions = faults(streams["faults"], world, duration_ms, pace)
        requests = workload(streams["workload"], world, duration_ms, pace.rates)
        actions += created_again(streams["created again"], world, requests)
    actions += operations(streams["operations"], world, duration_ms, calm=pace.is_calm, alone=is_alone)
    if world.brokers.kind == "participant":
        actions += failing_calls(streams["applications"], duration_ms, calm=pace.is_calm)
        actions += participant_faults(streams["leases"], world, duration_ms)
        if has_owners:
            actions += ownership(streams["owners"], world, duration_ms)
    if streams["end"].random() < 0.4 and not is_alone:
        actions += last_requests(streams["end"], world, duration_ms)
    core_down = []
    if rng.random() < 0.3:
        core_down = [f"broker {rng.randint(1, world.brokers.count)}"]
        failed = _failed_last(actions, duration_ms)
        if failed and rng.random() < 0.5:
            core_down = [rng.choice(failed)]
        elif rng.random() < 0.7:
            # It is lost before the other faults end, so that operators meet partitions that have lost their replicas.
            actions += loss(streams["loss"], world, core_down[0], duration_ms)
    return Script(
        name=f"seed-{seed}",
        world=world,
        schedule=drawn_schedule(streams["schedule"], seed),
        latency=drawn_latency(streams["world"]),
        duration_ms=duration_ms,
        actions=sorted(actions, key=lambda action: action.at_ms),
        liveness=LivenessSpec(core_down),
        swarm=swarm,
    )


def _failed_last(actions: Iterable[Action], duration_ms: float) -> list[str]:
    """Returns the brokers that fail at the end of a run, by their ids."""
    nodes = [action.args["node"] for action in actions if action.do == "kill" and action.at_ms > duration_ms - _LAST_MS]
    return sorted({node for node in nodes if node.startswith("broker ")})
