"""What a protocol level is written as, and what it brings."""

import pytest

from kactl.config.protocol_level import LATEST, ProtocolLevel
from kactl.errors import BadConfig


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("2.6", ProtocolLevel(2, 6)),
        ("2.7-IV1", ProtocolLevel(2, 7, 1)),
        ("2.8", ProtocolLevel(2, 8, 1)),  # a release stands for its last step
        ("3.4.1", ProtocolLevel(3, 4)),
        ("3.9", LATEST),
    ],
)
def test_a_level_is_written_as_in_the_configuration_of_a_broker(text: str, level: ProtocolLevel) -> None:
    assert ProtocolLevel.parse(text) == level


@pytest.mark.parametrize(
    "text", ["", "3", "latest", "2.5", "2.4-IV1", "2.6-IV1", "3.10", "4.0", "3.9-IV", "3.9 ", "٣.٩"]
)
def test_a_level_that_cannot_be_led_is_refused(text: str) -> None:
    with pytest.raises(BadConfig, match=r"^kafka\.ibp: .*2\.6") as refused:
        ProtocolLevel.parse(text)

    assert refused.value.field == "kafka.ibp"


@pytest.mark.parametrize(
    ("what", "last_without", "first_with"),
    [
        ("feature_versioning", "2.6", "2.7-IV0"),
        ("alter_partition", "2.7-IV1", "2.7-IV2"),
        ("topic_ids", "2.7", "2.8-IV0"),
        ("recovery", "3.1", "3.2"),
    ],
)
def test_each_ability_begins_with_its_step(what: str, last_without: str, first_with: str) -> None:
    assert not getattr(ProtocolLevel.parse(last_without), what)
    assert getattr(ProtocolLevel.parse(first_with), what)


def test_features_are_written_in_another_format_from_3_3_on() -> None:
    formats = [ProtocolLevel.parse(text).feature_format for text in ("2.7", "3.2", "3.3-IV0", "3.9")]

    assert formats == [1, 1, 2, 2]
