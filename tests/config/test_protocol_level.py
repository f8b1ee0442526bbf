"""Protocol levels: text forms and capabilities."""

import pytest

from kactl.config.protocol_level import LATEST, ProtocolLevel
from kactl.model.errors import BadConfig


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("2.6", ProtocolLevel(2, 6)),
        ("2.7-IV1", ProtocolLevel(2, 7, 1)),
        ("2.8", ProtocolLevel(2, 8, 1)),  # a release means its last level
        ("3.4.1", ProtocolLevel(3, 4)),
        ("3.9", LATEST),
    ],
)
def test_level_is_parsed_as_in_broker_configurations(text: str, level: ProtocolLevel) -> None:
    assert ProtocolLevel.parse(text) == level


@pytest.mark.parametrize(
    "text", ["", "3", "latest", "2.5", "2.4-IV1", "2.6-IV1", "3.10", "4.0", "3.9-IV", "3.9 ", "٣.٩"]
)
def test_unsupported_level_is_rejected(text: str) -> None:
    with pytest.raises(BadConfig, match=r"^kafka\.ibp: .*2\.6") as refused:
        ProtocolLevel.parse(text)

    assert refused.value.field == "kafka.ibp"


@pytest.mark.parametrize(
    ("capability", "last_without", "first_with"),
    [
        ("feature_versioning", "2.6", "2.7-IV0"),
        ("alter_partition", "2.7-IV1", "2.7-IV2"),
        ("topic_ids", "2.7", "2.8-IV0"),
        ("recovery", "3.1", "3.2"),
    ],
)
def test_each_capability_begins_at_its_level(capability: str, last_without: str, first_with: str) -> None:
    assert not getattr(ProtocolLevel.parse(last_without), capability)
    assert getattr(ProtocolLevel.parse(first_with), capability)


def test_feature_format_changes_at_3_3() -> None:
    formats = [ProtocolLevel.parse(text).feature_format for text in ("2.7", "3.2", "3.3-IV0", "3.9")]

    assert formats == [1, 1, 2, 2]
