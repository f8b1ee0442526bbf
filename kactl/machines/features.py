"""The features that a cluster agrees on: what may be finalized, and what a new controller makes of what is stored.

A feature that is finalized at a level binds every broker: one that does not support the level is no broker of this
cluster. So a level is finalized only if the controller and all brokers support it.

Source: the classic controller's initializeFeatures and validateFeatureUpdate, BrokerFeatures.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kactl.errors import ErrorCode
from kactl.messages.admin import FeatureResult, FeatureUpdate, UpgradeType
from kactl.model import Broker, Features

# (lowest, highest) level by name.
Supported = Mapping[str, tuple[int, int]]

# A level below this takes a feature away.
LEVEL_MIN: Final = 1
# Of the stored entry; the first is for brokers below protocol level 3.3.


def at_takeover(stored: Features | None, *, versioning: bool, format: int) -> Features | None:
    """What a new controller writes over what is stored; None if it stays as it is.

    Features that are kept by a cluster which finalizes none, or were kept by one, hold no longer.

    Args:
        versioning: whether features are finalized (protocol level 2.7 and above).
        format: in which entries are written.
    """
    kept = dict(stored.levels) if stored is not None and stored.enabled and versioning else {}
    wanted = Features(kept, enabled=versioning, format=format)
    if stored is not None and (stored.levels, stored.enabled, stored.format) == (kept, versioning, format):
        return None
    return wanted


def incompatible(broker: Broker, finalized: Mapping[str, int]) -> list[str]:
    """Of the finalized features those, by name, whose level a broker does not support."""
    supported = {name: (lowest, highest) for name, lowest, highest in broker.features}
    return sorted(name for name, level in finalized.items() if not _supports(supported, name, level))


def update(
    updates: Sequence[FeatureUpdate], finalized: Mapping[str, int], *, supported: Supported, brokers: Iterable[Broker]
) -> tuple[dict[str, int], list[FeatureResult]]:
    """What is finalized after some updates, each judged by what is finalized before all of them.

    Args:
        supported: by the controller.

    Returns:
        levels by name, and what became of each update, in order; a refused one changes nothing.
    """
    known = list(brokers)
    levels, results = dict(finalized), []
    for each in updates:
        reason = _refusal(each, finalized, supported, known)
        if reason:
            results.append(FeatureResult(each.feature, ErrorCode.INVALID_REQUEST, reason))
            continue
        results.append(FeatureResult(each.feature))
        if each.level < LEVEL_MIN:
            levels.pop(each.feature, None)
        else:
            levels[each.feature] = each.level
    return levels, results


def _refusal(
    asked: FeatureUpdate, finalized: Mapping[str, int], supported: Supported, brokers: Sequence[Broker]
) -> str:
    """Why an update cannot be made, by the first rule that it breaks; empty if it can."""
    name, level, kind = asked.feature, asked.level, asked.upgrade_type
    held = finalized.get(name)
    if not name:
        return "a feature needs a name"
    if kind not in (UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE):
        return f"the kind of the update, {int(kind)}, is none that is known: use 1, 2 or 3"
    if level < LEVEL_MIN and kind != UpgradeType.UPGRADE:
        return "" if held is not None else f"{name} is not finalized, and cannot be taken away"
    if level < LEVEL_MIN:
        return f"level {level} would take {name} away, which no upgrade does: ask for a downgrade"
    if held is not None and (refused := _move(name, held, level, kind)):
        return refused
    if name not in supported:
        return f"this controller does not support {name}"
    lowest, highest = supported[name]
    if not lowest <= level <= highest:
        return f"level {level} of {name} is outside of what this controller supports: {lowest} to {highest}"
    without = [broker.id for broker in brokers if incompatible(broker, {name: level})]
    if without:
        return f"level {level} of {name} is not supported by brokers {without}"
    return ""


def _move(name: str, held: int, level: int, kind: UpgradeType) -> str:
    """Why a feature cannot go from one level to another by an update of that kind; empty if it can."""
    if level == held:
        return f"{name} is at level {held} already"
    if level < held and kind != UpgradeType.SAFE_DOWNGRADE:
        return f"level {level} of {name} is below {held}, where it is: ask for a safe downgrade"
    if level > held and kind != UpgradeType.UPGRADE:
        return f"level {level} of {name} is above {held}, where it is: ask for an upgrade"
    return ""


def _supports(supported: Supported, name: str, level: int) -> bool:
    lowest, highest = supported.get(name, (0, -1))
    return lowest <= level <= highest
