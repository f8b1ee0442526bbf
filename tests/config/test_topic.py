"""Overrides of topics: values that would crash brokers are rejected before they are stored."""

import pytest

from kactl.config import topic as topic_config


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("unclean.leader.election.enable", "True"),
        ("min.insync.replicas", "1"),
        ("retention.ms", "-1"),
        ("retention.bytes", "-1"),
        ("cleanup.policy", "compact, delete"),
        ("compression.type", "zstd"),
        ("min.cleanable.dirty.ratio", "0.5"),
        ("max.message.bytes", str(2**31 - 1)),
        ("what.kafka.does.not.know", "banana"),
    ],
)
def test_valid_overrides_are_accepted(name: str, value: str) -> None:
    assert topic_config.wrong({name: value}) is None


@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        ("unclean.leader.election.enable", "banana", "true or false"),
        ("min.insync.replicas", "0", f"a whole number from 1 to {2**31 - 1}"),
        ("min.insync.replicas", "1.5", f"a whole number from 1 to {2**31 - 1}"),
        ("min.insync.replicas", "\u0663", f"a whole number from 1 to {2**31 - 1}"),
        ("max.message.bytes", str(2**31), f"a whole number from 0 to {2**31 - 1}"),
        ("retention.ms", "-2", f"a whole number from -1 to {2**63 - 1}"),
        ("retention.ms", "9" * 5000, f"a whole number from -1 to {2**63 - 1}"),
        ("retention.ms", "", f"a whole number from -1 to {2**63 - 1}"),
        ("cleanup.policy", "shred", "some of compact, delete"),
        ("message.timestamp.type", "createtime", "one of CreateTime, LogAppendTime"),
        ("min.cleanable.dirty.ratio", "nan", "a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "half", "a number from 0 to 1"),
    ],
)
def test_invalid_override_is_rejected_with_the_valid_values(name: str, value: str, right: str) -> None:
    assert topic_config.wrong({"other": "x", name: value}) == (name, f"{value!r} is not valid; it must be {right}")
