"""Edits that make a script simpler: its world, schedule, latencies and actions.

An edit takes the script as it is by then, and returns the edited one, or None if it does not apply any more. Whether it
is kept is decided by a run; see `shrinking`.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from .script import Action, BrokersSpec, LatencySpec, Script

Edit = Callable[[Script], Script | None]

# The level that most users run, and the defaults of everything else.
_SIMPLEST_BROKERS: Final = BrokersSpec()
# Times in scripts are rounded to these multiples, in ms; the coarsest first.
_ROUND_MS: Final = (1_000.0, 100.0, 10.0, 1.0)
# The first part of a script, in which topics are created.
SETUP_MS: Final = 5_000.0
# Verbs that create a topic, and the arguments of the second one that the first one does not have.
_CREATIONS: Final = ("create", "recreate")
_OF_RECREATION: Final = ("removal", "after_ms")
# How often a pause is halved in one pass: to less than a hundredth.
_HALVINGS: Final = 7
# What is left of a first phase after its last action, if the violation is found later.
_REST_MS: Final = (0.0, 1_000.0, 10_000.0)


def replace(script: Script, **fields: Any) -> Script:
    """Returns a copy of a script with other fields."""
    return msgspec.structs.replace(script, **fields)


def reseeded(script: Script, count: int) -> Iterator[Script]:
    """Yields the script with its own schedule seed, and then with others. The seeds depend on its own one only."""
    yield script
    for offset in range(1, count):
        seed = (script.schedule.seed * 31 + offset) % 2**31
        yield replace(script, schedule=msgspec.structs.replace(script.schedule, seed=seed))


# -- actions, first pass ----------------------------------------------------------------------------------------------


def without_actions_after(script: Script, time_ms: float) -> Script:
    """Returns the script without the actions after a time, and with a first phase that ends there.

    Actions at points stay: their time is not known.
    """
    kept = [action for action in script.actions if action.at_point or action.at_ms <= time_ms]
    return replace(script, actions=kept, duration_ms=min(script.duration_ms, time_ms), swarm={})


def without_early_actions(script: Script, share: float) -> Script | None:
    """Returns the script without the actions in the first part of its first phase, and the later ones so much earlier.

    The actions of the first moments stay: they create what the later ones are about.
    """
    gap_ms = share * (script.duration_ms - SETUP_MS)
    if gap_ms < SETUP_MS:
        return None
    later = [action for action in script.actions if action.at_ms >= SETUP_MS + gap_ms]
    moved = [msgspec.structs.replace(action, at_ms=action.at_ms - gap_ms) for action in later]
    first = [action for action in script.actions if action.at_ms < SETUP_MS]
    return replace(script, actions=first + moved, duration_ms=script.duration_ms - gap_ms)


def with_latest_actions(script: Script, count: int) -> Script | None:
    """Returns the script with its last actions only, which begin soon after the creation of all earlier topics."""
    if count >= len(script.actions):
        return None
    earlier, latest = script.actions[:-count], script.actions[-count:]
    created = {action.args["topic"]: action for action in earlier if action.do in _CREATIONS and "topic" in action.args}
    step_ms = SETUP_MS / (len(created) + 1)
    first = [
        Action("create", at_ms=step_ms * number, args={k: v for k, v in action.args.items() if k not in _OF_RECREATION})
        for number, action in enumerate(created.values())
    ]
    gap_ms = max(0.0, latest[0].at_ms - SETUP_MS)
    moved = [msgspec.structs.replace(action, at_ms=action.at_ms - gap_ms) for action in latest]
    shorter = replace(script, actions=first + moved, duration_ms=max(script.duration_ms - gap_ms, SETUP_MS))
    return shorter if len(shorter.actions) < len(script.actions) else None


def topics(script: Script) -> list[str]:
    """Returns the names of topics in a script, in the order of their first action."""
    return list(dict.fromkeys(name for action in script.actions for name in sorted(_topics(action))))


def with_topics(script: Script, names: Collection[str]) -> Script:
    """Returns the script without the actions that name other topics only."""
    kept = [action for action in script.actions if not (named := _topics(action)) or named.intersection(names)]
    return replace(script, actions=kept)


def _topics(action: Action) -> set[str]:
    """Returns the topics that an action names; a topic that a selector chooses has no name."""
    targets = [name for name in action.args.get("targets", ()) if " " not in name]
    named = {name.rpartition("-")[0] for name in targets}
    topic = action.args.get("topic", "")
    return named | {topic} if topic and " " not in topic else named


def with_verbs(script: Script, verbs: Collection[str]) -> Script:
    return replace(script, actions=[action for action in script.actions if action.do in verbs])


# -- world ------------------------------------------------------------------------------------------------------------


def world(script: Script) -> Iterator[Edit]:
    """Fewer nodes, default settings, the newest protocol level, the simplest store and brokers."""
    yield with_default_settings
    yield from (partial(_without_setting, name=name) for name in script.world.settings)
    yield partial(_with_brokers, racks=1)
    yield partial(_with_brokers, level=_SIMPLEST_BROKERS.level)
    yield partial(_with_brokers, kind=_SIMPLEST_BROKERS.kind)
    yield partial(_with_world, store="memory")
    yield from (partial(_with_fewer_brokers, count=count) for count in range(1, script.world.brokers.count))
    yield from (partial(_with_fewer_controllers, count=count) for count in range(1, script.world.controllers))
    yield partial(_without_down, selectors=script.liveness.core_down)
    yield from (partial(_without_down, selectors=[selector]) for selector in script.liveness.core_down)


def with_default_settings(script: Script) -> Script:
    return _with_world(script, settings={})


def _with_world(script: Script, **fields: Any) -> Script:
    return replace(script, world=msgspec.structs.replace(script.world, **fields))


def _with_brokers(script: Script, **fields: Any) -> Script:
    return _with_world(script, brokers=msgspec.structs.replace(script.world.brokers, **fields))


def _without_setting(script: Script, name: str) -> Script:
    return _with_world(script, settings={key: value for key, value in script.world.settings.items() if key != name})


def _with_fewer_brokers(script: Script, count: int) -> Script | None:
    return _with_brokers(script, count=count) if count < script.world.brokers.count else None


def _with_fewer_controllers(script: Script, count: int) -> Script | None:
    return _with_world(script, controllers=count) if count < script.world.controllers else None


def _without_down(script: Script, selectors: Sequence[str]) -> Script:
    rest = [selector for selector in script.liveness.core_down if selector not in selectors]
    return replace(script, liveness=msgspec.structs.replace(script.liveness, core_down=rest))


# -- schedule and latency ---------------------------------------------------------------------------------------------


def schedule(script: Script) -> Iterator[Edit]:
    """`fifo`, then fewer changes of priority, no hold-backs, no grid."""
    yield partial(_with_schedule, strategy="fifo", hold_back=0.0, changes=0, only=None)
    yield from (partial(_with_fewer_changes, changes=changes) for changes in range(script.schedule.changes))
    yield _without_hold_backs
    yield partial(_with_schedule, grid_ms=0.0)


def _with_fewer_changes(script: Script, changes: int) -> Script | None:
    return _with_schedule(script, changes=changes) if changes < script.schedule.changes else None


def _without_hold_backs(script: Script) -> Script | None:
    is_shuffled = script.schedule.strategy == "shuffle"
    return _with_schedule(script, hold_back=0.0, only=None) if is_shuffled else None


def with_held_steps(script: Script, steps: Sequence[int]) -> Script:
    """Returns the script in which only these steps may be held back."""
    return _with_schedule(script, only=list(steps))


def _with_schedule(script: Script, **fields: Any) -> Script:
    return replace(script, schedule=msgspec.structs.replace(script.schedule, **fields))


def latency(script: Script) -> Iterator[Edit]:
    """All latencies zero, then each, then each constant."""
    yield lambda script: replace(script, latency=LatencySpec())
    for name in ("store_ms", "network_ms"):
        yield partial(_with_latency, name=name, value=(0.0, 0.0))
        yield partial(_with_constant_latency, name=name)


def _with_latency(script: Script, name: str, value: tuple[float, float]) -> Script:
    return replace(script, latency=msgspec.structs.replace(script.latency, **{name: value}))


def _with_constant_latency(script: Script, name: str) -> Script | None:
    low, high = getattr(script.latency, name)
    middle = round((low + high) / 2, 1)
    return None if low == high else _with_latency(script, name, (middle, middle))


# -- actions, last pass -----------------------------------------------------------------------------------------------


def actions(script: Script) -> Iterator[Edit]:
    """Shorter runs, simpler arguments, rounder times, merged neighbours."""
    yield from (partial(_ending, rest_ms=rest_ms) for rest_ms in _REST_MS)
    for index, action in enumerate(script.actions):
        yield partial(_with_action, index=index, hit=1)
        for name, value in action.args.items():
            yield partial(_without_argument, index=index, name=name)
            for simpler in _simpler(value):
                yield partial(_with_argument, index=index, name=name, value=simpler)
    for index, step_ms in itertools.product(range(len(script.actions)), _ROUND_MS):
        yield partial(_earlier, index=index, step_ms=step_ms, share=0.0)
        # Once one of these is dropped, the others are the same candidate again, which is not run a second time.
        yield from itertools.repeat(partial(_earlier, index=index, step_ms=step_ms, share=0.5), _HALVINGS)
        yield partial(_rounder, index=index, step_ms=step_ms)
    # From the end, so that the numbers of the earlier actions stay.
    yield from (partial(_merged, index=index) for index in reversed(range(1, len(script.actions))))


def _ending(script: Script, rest_ms: float) -> Script | None:
    last_ms = max((action.at_ms for action in script.actions if not action.at_point), default=0.0)
    return replace(script, duration_ms=last_ms + rest_ms) if last_ms + rest_ms < script.duration_ms else None


def _with_action(script: Script, index: int, **fields: Any) -> Script:
    changed = list(script.actions)
    changed[index] = msgspec.structs.replace(changed[index], **fields)
    return replace(script, actions=changed)


def _without_argument(script: Script, index: int, name: str) -> Script:
    args = script.actions[index].args
    return _with_action(script, index, args={key: value for key, value in args.items() if key != name})


def _with_argument(script: Script, index: int, name: str, value: Any) -> Script | None:
    args = script.actions[index].args
    if name not in args or not _size(value) < _size(args[name]):
        return None
    return _with_action(script, index, args={**args, name: value})


def _simpler(value: Any) -> Iterator[Any]:
    """Yields simpler values of the same type, the simplest first."""
    if isinstance(value, bool):
        yield False
    elif isinstance(value, int | float):
        yield from (type(value)(other) for other in (0, 1, *reversed(_ROUND_MS), value // 2) if 0 <= other < value)
    elif isinstance(value, list):
        yield from (value[:length] for length in range(1, len(value)))
        yield from (value[:index] + value[index + 1 :] for index in range(len(value) - 1))
        # Numbers within lists are mostly ids, and no id is simpler than another.
        for index, item in enumerate(value):
            if isinstance(item, list):
                yield from ([*value[:index], simpler, *value[index + 1 :]] for simpler in _simpler(item))


def _size(value: Any) -> tuple[float, ...]:
    """Returns what makes a value complex: the number of values in it, then their sum."""
    if isinstance(value, bool | int | float):
        return (1, float(value))
    if isinstance(value, list):
        sizes = [_size(item) for item in value]
        return (1 + sum(size[0] for size in sizes), sum(size[1] for size in sizes))
    return (1, 0.0)


def _earlier(script: Script, index: int, step_ms: float, share: float) -> Script | None:
    """Returns the script with a share of the pause before an action: it and all later ones move by the same time."""
    action = script.actions[index]
    if action.at_point:
        return None
    before_ms = max((other.at_ms for other in script.actions[:index] if not other.at_point), default=0.0)
    moved_ms = action.at_ms - _up(before_ms + (action.at_ms - before_ms) * share, step_ms)
    if moved_ms <= 0:
        return None
    changed = [
        other if position < index or other.at_point else _at(other, other.at_ms - moved_ms)
        for position, other in enumerate(script.actions)
    ]
    return replace(script, actions=changed, duration_ms=script.duration_ms - moved_ms)


def _rounder(script: Script, index: int, step_ms: float) -> Script | None:
    """Returns the script with an earlier, rounder time of one action, not before the action that precedes it.

    Times are only rounded down: rounding up would undo what `_earlier` has done, and the passes would never end.
    """
    action = script.actions[index]
    round_ms = action.at_ms // step_ms * step_ms
    low_ms = script.actions[index - 1].at_ms if index else 0.0
    if action.at_point or not low_ms <= round_ms < action.at_ms:
        return None
    return _with_action(script, index, at_ms=round_ms)


def _up(time_ms: float, step_ms: float) -> float:
    return -(-time_ms // step_ms) * step_ms


def _at(action: Action, at_ms: float) -> Action:
    return msgspec.structs.replace(action, at_ms=at_ms)


def _merged(script: Script, index: int) -> Script | None:
    """Returns the script with one action in place of two neighbours that differ only in lists: the lists are joined."""
    if index >= len(script.actions):
        return None
    first, second = script.actions[index - 1], script.actions[index]
    if (first.do, first.at_point, first.args.keys()) != (second.do, second.at_point, second.args.keys()):
        return None
    args: dict[str, Any] = {}
    for name, value in first.args.items():
        other = second.args[name]
        if isinstance(value, list) and isinstance(other, list):
            args[name] = value + [item for item in other if item not in value]
        elif value == other:
            args[name] = value
        else:
            return None
    merged = msgspec.structs.replace(first, args=args)
    return replace(script, actions=[*script.actions[: index - 1], merged, *script.actions[index + 1 :]])
