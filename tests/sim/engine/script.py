"""Scripts of the simulator: everything that is decided about a run before it starts.

A script is one JSON object. Equal scripts with equal versions of the code make equal runs, and each subset of a
script's actions is a valid script, so that a failing one can be reduced.
"""

from pathlib import Path
from typing import Any, Literal

import msgspec

from kactl.testing import script
from kactl.testing.script import FORMAT, ScheduleSpec, ScriptError, dumps
from kactl.testing.shrinking import PASS

__all__ = [
    "FORMAT",
    "PASS",
    "Action",
    "BrokersSpec",
    "LatencySpec",
    "LivenessSpec",
    "ScheduleSpec",
    "Script",
    "ScriptError",
    "WorldSpec",
    "dumps",
    "load",
    "loads",
]


class BrokersSpec(msgspec.Struct, forbid_unknown_fields=True):
    """Brokers of a world.

    Attributes:
        kind: `model` for modelled Kafka brokers, `participant` for real kactl participants.
        level: protocol level, for modelled brokers.
        racks: number of racks, over which the brokers are spread in turn.
        sessions: where participants register: in the store, with the controller, or `mixed`: those with odd ids with
            the controller.
        links: participants keep links to the active controller, which fences those without one. Sessions with the
            controller need them.
        handlers: participants host a handler for each partition, and not a listener for all.
    """

    kind: Literal["model", "participant"] = "model"
    count: int = 4
    level: str = "3.9"
    racks: int = 1
    sessions: Literal["store", "controller", "mixed"] = "store"
    links: bool = False
    handlers: bool = False


class WorldSpec(msgspec.Struct, forbid_unknown_fields=True):
    """Parts of a run.

    Attributes:
        store: kind of the store.
        controllers: number of controller instances. Their ids start at 100.
        settings: settings of the controllers that differ from the defaults, by name.
        spectators: number of programs that follow the routes; only with links.
    """

    store: Literal["memory", "sqlite", "zookeeper"] = "memory"
    brokers: BrokersSpec = msgspec.field(default_factory=BrokersSpec)
    controllers: int = 2
    settings: dict[str, Any] = {}
    spectators: int = 0


class LatencySpec(msgspec.Struct, forbid_unknown_fields=True):
    """Latencies in ms: each message takes a uniform time between the two values."""

    store_ms: tuple[float, float] = (0.0, 0.0)
    network_ms: tuple[float, float] = (0.0, 0.0)


class Action(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One thing that the script does.

    Attributes:
        do: verb.
        at_ms: virtual time at which it happens; with `at_point`, from which on executions count.
        at_point: named point of the code at which it happens instead, at its `hit`th execution; see `points`.
        args: arguments of the verb. Targets are selectors, resolved when the action happens: `broker 4`,
            `active controller`, `leader of t1-0`.
    """

    do: str
    at_ms: float = 0.0
    at_point: str = ""
    hit: int = 1
    args: dict[str, Any] = {}


class LivenessSpec(msgspec.Struct, forbid_unknown_fields=True):
    """Second phase of a run, in which no new fault begins.

    Attributes:
        core_down: selectors of the nodes that stay down.
    """

    core_down: list[str] = []


class Script(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A whole run.

    Attributes:
        duration_ms: length of the first phase, in which the actions happen.
        swarm: the fault kinds that the generator chose, each with its rate; for reports only.
        expect: `pass`, or the signature of the violation that the run must end with.
    """

    format: int = FORMAT
    name: str = ""
    world: WorldSpec = msgspec.field(default_factory=WorldSpec)
    schedule: ScheduleSpec = msgspec.field(default_factory=ScheduleSpec)
    latency: LatencySpec = msgspec.field(default_factory=LatencySpec)
    duration_ms: float = 60_000.0
    actions: list[Action] = []
    liveness: LivenessSpec = msgspec.field(default_factory=LivenessSpec)
    swarm: dict[str, str] = {}
    expect: str = PASS


def loads(text: str | bytes, *, name: str) -> Script:
    """Read a script of a file with a name. Raises ScriptError: it is damaged, or of another format."""
    return script.loads(text, Script, name=name)


def load(path: Path) -> Script:
    """Read the script of a file. Raises ScriptError as `loads`, and OSError."""
    return loads(path.read_bytes(), name=str(path))
