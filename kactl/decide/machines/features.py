"""Finalized features of a cluster: validation of updates, and initialization by a new controller.

A finalized feature level binds every broker: a broker that does not support the level cannot join the cluster. A level
is therefore finalized only if the controller and all brokers support it.

Source: the classic controller's initializeFeatures and validateFeatureUpdate, BrokerFeatures.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kactl.decide.messages.admin import FeatureResult, FeatureUpdate, UpgradeType
from kactl.model import Broker, Features
from kactl.model.errors import ErrorCode

# (lowest, highest) level by name.
Supported = Mapping[str, tuple[int, int]]

# A lower level removes the feature.
LEVEL_MIN: Final = 1


def at_takeover(stored: Features | None, *, versioning: bool, format: int) -> Features | None:
    """Returns the features that a new controller must store; None if the stored ones stay.

    Stored features are dropped if this cluster does not finalize features, or did not when they were stored.

    Args:
        versioning: whether features are finalized (protocol level 2.7 and above).
        format: the format of the stored entry.
    """
    levels = dict(stored.levels) if stored is not None and stored.enabled and versioning else {}
    wanted = Features(levels, enabled=versioning, format=format)
    if stored is not None and (stored.levels, stored.enabled, stored.format) == (levels, versioning, format):
        return None
    return wanted


def incompatible(broker: Broker, finalized: Mapping[str, int]) -> list[str]:
    """Returns the names of the finalized features with a level that a broker does not support."""
    supported = {name: (lowest, highest) for name, lowest, highest in broker.features}
    return sorted(name for name, level in finalized.items() if not _supports(supported, name, level))


def update(
    updates: Sequence[FeatureUpdate], finalized: Mapping[str, int], *, supported: Supported, brokers: Iterable[Broker]
) -> tuple[dict[str, int], list[FeatureResult]]:
    """Returns the finalized features after some updates. Each update is validated against the features before all of
    them.

    Args:
        supported: by the controller.

    Returns:
        The levels by name, and the result of each update, in order. A rejected update changes nothing.
    """
    known = list(brokers)
    levels, results = dict(finalized), []
    for update_ in updates:
        reason = _refusal(update_, finalized, supported, known)
        if reason:
            results.append(FeatureResult(update_.feature, ErrorCode.INVALID_REQUEST, reason))
            continue
        results.append(FeatureResult(update_.feature))
        if update_.level < LEVEL_MIN:
            levels.pop(update_.feature, None)
        else:
            levels[update_.feature] = update_.level
    return levels, results


def _refusal(
    update_: FeatureUpdate, finalized: Mapping[str, int], supported: Supported, brokers: Sequence[Broker]
) -> str:
    """Returns the first rule that an update violates; empty if it is valid."""
    name, level, kind = update_.feature, update_.level, update_.upgrade_type
    level_now = finalized.get(name)
    if not name:
        return "a feature needs a name"
    if kind not in (UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE):
        return f"unknown update type {int(kind)}: use 1, 2 or 3"
    if level < LEVEL_MIN and kind != UpgradeType.UPGRADE:
        return "" if level_now is not None else f"{name} is not finalized and cannot be removed"
    if level < LEVEL_MIN:
        return f"level {level} would remove {name}, which an upgrade cannot: request a downgrade"
    if level_now is not None and (reason := _move(name, level_now, level, kind)):
        return reason
    if name not in supported:
        return f"this controller does not support {name}"
    lowest, highest = supported[name]
    if not lowest <= level <= highest:
        return f"level {level} of {name} is outside of the range that this controller supports: {lowest} to {highest}"
    without = [broker.id for broker in brokers if incompatible(broker, {name: level})]
    if without:
        return f"level {level} of {name} is not supported by brokers {without}"
    return ""


def _move(name: str, level_now: int, level: int, kind: UpgradeType) -> str:
    """Returns the reason why a level cannot change by this type of update; empty if it can."""
    if level == level_now:
        return f"{name} is already at level {level_now}"
    if level < level_now and kind != UpgradeType.SAFE_DOWNGRADE:
        return f"level {level} of {name} is below the current level {level_now}: request a safe downgrade"
    if level > level_now and kind != UpgradeType.UPGRADE:
        return f"level {level} of {name} is above the current level {level_now}: request an upgrade"
    return ""


def _supports(supported: Supported, name: str, level: int) -> bool:
    lowest, highest = supported.get(name, (0, -1))
    return lowest <= level <= highest
