"""Settings of a controller: one object or keywords, and the errors for both."""

import dataclasses
from typing import Any

import pytest

import kactl
from kactl.config.controller_settings import ControllerSettings, SettingKeywords
from kactl.config.protocol_level import ProtocolLevel

CHANGED: dict[str, Any] = {
    "level": ProtocolLevel(2, 8, 1),
    "supported_features": {"group.version": (0, 1)},
    "unclean_leader_election": True,
    "delete_topics": False,
    "auto_balance": False,
    "balance_interval_ms": 1,
    "balance_percentage": 2,
    "participant_balance_ms": 9,
    "shutdown_limit_ms": 3,
    "standby_interval_ms": 4,
    "take_over": True,
    "parity": True,
    "chunk_partitions": 5,
    "listed_as": kactl.Broker(7, 0, ()),
    "controller_ids": {7, 8},
    "new_topic_ids": ["t"],
    "partitions_max": 6,
    "min_insync_replicas": 2,
    "remote_log_storage_system_enable": True,
}
NAMES = [field.name for field in dataclasses.fields(ControllerSettings)]


def settings_of(controller: kactl.Controller) -> ControllerSettings:
    return controller.loop.context.settings


def test_every_setting_is_accepted_as_a_keyword() -> None:
    assert list(SettingKeywords.__annotations__) == NAMES == list(CHANGED)


def test_keywords_and_object_give_the_same_settings() -> None:
    by_keyword = kactl.Controller(7, **CHANGED)
    by_object = kactl.Controller(7, settings=kactl.ControllerSettings(**CHANGED))

    assert settings_of(by_keyword) == settings_of(by_object)
    assert settings_of(by_object).controller_ids == {7, 8}
    assert by_object.partitions.unclean.own
    assert by_object.cluster.listed_as == CHANGED["listed_as"]


def test_defaults_are_those_of_the_object() -> None:
    assert settings_of(kactl.Controller(3)) == ControllerSettings(controller_ids=frozenset({3}))


def test_level_is_read_from_text() -> None:
    assert settings_of(kactl.Controller(0, level="2.8")).level == ProtocolLevel(2, 8, 1)
    assert ControllerSettings(level="2.8").level == ProtocolLevel(2, 8, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_setting_given_twice_is_rejected(name: str) -> None:
    with pytest.raises(TypeError, match=f"'{name}' is given twice"):
        kactl.Controller(7, settings=ControllerSettings(), **{name: CHANGED[name]})


def test_unknown_setting_is_rejected_with_the_nearest_name() -> None:
    with pytest.raises(TypeError, match="'partiy' is not a setting of a controller; did you mean 'parity'"):
        kactl.Controller(7, partiy=True)  # type: ignore[call-arg]


def test_settings_are_checked_in_both_forms() -> None:
    with pytest.raises(kactl.BadRequest, match="chunk_partitions"):
        kactl.Controller(7, settings=ControllerSettings(chunk_partitions=0))
    with pytest.raises(kactl.BadRequest, match="listed_as"):
        kactl.Controller(8, listed_as=CHANGED["listed_as"])
