"""Feature updates: valid finalized levels, and the features written by a new controller."""

import pytest

from kactl.decide.machines.features import at_takeover, incompatible, update
from kactl.decide.messages.admin import FeatureUpdate, UpgradeType
from kactl.model import Broker, Features
from kactl.model.errors import ErrorCode

UP, SAFE, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE
SUPPORTED = {"a": (1, 5), "b": (2, 3), "new": (1, 9)}
BROKERS = [
    Broker(1, 1, features=(("a", 1, 5), ("b", 2, 3), ("new", 1, 9))),
    Broker(2, 1, features=(("a", 1, 4), ("b", 2, 3))),
]
FINALIZED = {"a": 3, "b": 2}


def updated(*updates: FeatureUpdate) -> tuple[dict[str, int], list[str]]:
    """Return the features finalized by the updates, and the message of each update (empty if accepted)."""
    levels, results = update(updates, FINALIZED, supported=SUPPORTED, brokers=BROKERS)
    for result in results:
        assert (result.error is ErrorCode.INVALID_REQUEST) == bool(result.message)
    return levels, [result.message for result in results]


@pytest.mark.parametrize(
    ("update_", "reason"),
    [
        (FeatureUpdate("", 1), "needs a name"),
        (FeatureUpdate("", 0, UpgradeType.UNKNOWN), "needs a name"),
        (FeatureUpdate("a", 4, UpgradeType.UNKNOWN), "unknown update type 0"),
        (FeatureUpdate("stranger", 0, SAFE), "is not finalized"),
        (FeatureUpdate("a", 0, UP), "which an upgrade cannot"),
        (FeatureUpdate("stranger", -1, UP), "which an upgrade cannot"),
        (FeatureUpdate("a", 3, UP), "already at level 3"),
        (FeatureUpdate("a", 3, SAFE), "already at level 3"),
        (FeatureUpdate("a", 2, UP), "request a safe downgrade"),
        (FeatureUpdate("a", 2, UNSAFE), "request a safe downgrade"),
        (FeatureUpdate("a", 4, SAFE), "request an upgrade"),
        (FeatureUpdate("a", 4, UNSAFE), "request an upgrade"),
        (FeatureUpdate("stranger", 1), "does not support stranger"),
        (FeatureUpdate("b", 1, SAFE), "outside of the range that this controller supports: 2 to 3"),
        (FeatureUpdate("a", 6), "outside of the range that this controller supports: 1 to 5"),
        (FeatureUpdate("a", 5), "not supported by brokers [2]"),
        (FeatureUpdate("new", 1), "not supported by brokers [2]"),
    ],
)
def test_update_is_rejected_by_the_first_rule_that_it_violates(update_: FeatureUpdate, reason: str) -> None:
    levels, (message,) = updated(update_)

    assert levels == FINALIZED
    assert reason in message


def test_valid_updates_are_applied_beside_rejected_ones() -> None:
    levels, messages = updated(
        FeatureUpdate("a", 4), FeatureUpdate("a", 9), FeatureUpdate("b", 0, SAFE), FeatureUpdate("stranger", 1)
    )

    assert levels == {"a": 4}
    assert [bool(message) for message in messages] == [False, True, False, True]


def test_safe_downgrade_is_accepted() -> None:
    assert updated(FeatureUpdate("a", 1, SAFE)) == ({"a": 1, "b": 2}, [""])


def test_broker_without_features_is_compatible_with_none_finalized() -> None:
    assert incompatible(Broker(3, 1), {}) == []
    assert incompatible(Broker(3, 1), FINALIZED) == ["a", "b"]
    assert incompatible(BROKERS[1], {"a": 5, "b": 3}) == ["a"]


ENABLED, DISABLED = Features({"a": 3}, version=7), Features({"a": 3}, enabled=False, version=7)
EMPTY, OFF = Features(), Features(enabled=False)


@pytest.mark.parametrize(
    ("stored", "versioning", "written"),
    [
        (None, True, EMPTY),
        (ENABLED, True, None),
        (DISABLED, True, EMPTY),
        (Features({"a": 3}, format=1, version=7), True, Features({"a": 3})),
        (None, False, OFF),
        (ENABLED, False, OFF),
        (DISABLED, False, OFF),
        (Features(enabled=False, version=7), False, None),
    ],
)
def test_features_written_by_a_new_controller(
    stored: Features | None, versioning: bool, written: Features | None
) -> None:
    assert at_takeover(stored, versioning=versioning, format=2) == written
