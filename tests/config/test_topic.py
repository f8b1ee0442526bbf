"""Overrides of topics: misspelled names, and values that would crash brokers, are rejected before they are stored."""

import pytest

from kactl.config.protocol_level import LATEST, ProtocolLevel
from kactl.config.topic import LEASE, SETTINGS, Rules, check_overrides
from kactl.model.errors import BadConfig

OWN = Rules(own_names=True)
REMOTE = Rules(has_remote_storage=True)
LONG = "a whole number from {} to 9223372036854775807"
INT = "a whole number from {} to 2147483647"

# Names that brokers did not know at first, as the definitions of LogConfig in 2.6.3 to 3.9.1 have them.
LATER = {
    (3, 0): {"local.retention.bytes", "local.retention.ms", "remote.storage.enable"},
    (3, 6): {"message.timestamp.after.max.ms", "message.timestamp.before.max.ms"},
    (3, 8): {"compression.gzip.level", "compression.lz4.level", "compression.zstd.level"},
    (3, 9): {"remote.log.copy.disable", "remote.log.delete.on.disable"},
}


@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        ("unclean.leader.election.enable", "banana", "true or false"),
        ("min.insync.replicas", "0", INT.format(1)),
        ("min.insync.replicas", "1.5", INT.format(1)),
        ("min.insync.replicas", "²", INT.format(1)),
        ("max.message.bytes", str(2**31), INT.format(0)),
        ("retention.ms", "-2", LONG.format(-1)),
        ("retention.ms", "9" * 5000, LONG.format(-1)),
        ("retention.ms", "", LONG.format(-1)),
        ("cleanup.policy", "shred", "some of compact, delete"),
        ("message.timestamp.type", "createtime", "one of CreateTime, LogAppendTime"),
        ("min.cleanable.dirty.ratio", "nan", "a number from 0 to 1"),
        ("compression.gzip.level", "99", "a whole number from 1 to 9, or -1"),
        ("leader.replication.throttled.replicas", "1:x", "* or PARTITION:BROKER,PARTITION:BROKER,..."),
        ("message.format.version", "4.1", "a version from 0.8.0 to 3.9, such as 2.8-IV1"),
    ],
)
def test_invalid_value_is_rejected_with_the_valid_ones(name: str, value: str, right: str) -> None:
    with pytest.raises(BadConfig) as raised:
        check_overrides({name: value}, Rules())

    assert raised.value.reason == f"{name}: {value!r} is not valid; it must be {right}"


def test_empty_cleanup_policy_is_accepted() -> None:
    check_overrides({"cleanup.policy": ""}, Rules())


def test_unknown_name_is_rejected_with_the_similar_one() -> None:
    with pytest.raises(BadConfig) as raised:
        check_overrides({"retentoin.ms": "1"}, Rules())

    assert raised.value.reason == "retentoin.ms: topics have no such setting; did you mean retention.ms?"


def test_leases_are_no_setting_where_kafkas_brokers_are() -> None:
    check_overrides({LEASE: "false"}, OWN)

    with pytest.raises(BadConfig, match=f"{LEASE}: topics have no such setting$"):
        check_overrides({LEASE: "false"}, Rules())


def test_programs_without_kafkas_brokers_have_names_of_their_own() -> None:
    check_overrides({"jobs.parallel": "many"}, OWN)

    with pytest.raises(BadConfig, match=r"did you mean leadership\.lease"):
        check_overrides({"leadership.leas": "false"}, OWN)
    with pytest.raises(BadConfig, match="not valid"):
        check_overrides({"retention.ms": "many"}, OWN)


@pytest.mark.parametrize("level", LATER)
def test_name_is_accepted_from_the_level_on_that_introduced_it(level: tuple[int, int]) -> None:
    since = ProtocolLevel(*level)
    before = Rules(ProtocolLevel(level[0], level[1] - 1) if level[1] else ProtocolLevel(2, 8, 1))
    values = {name: "false" if name.startswith("remote.") else "1" for name in LATER[level]}

    check_overrides(values, Rules(since))

    assert {name for name, setting in SETTINGS.items() if setting.since == since} == LATER[level]
    for name, value in values.items():
        with pytest.raises(BadConfig, match=f"from level {level[0]}.{level[1]} on.* raise kafka.ibp"):
            check_overrides({name: value}, before)


def test_format_of_records_is_one_that_the_level_knows() -> None:
    check_overrides({"message.format.version": "4.0-IV0"}, Rules(LATEST))
    check_overrides({"message.format.version": "2.8-IV1"}, Rules(ProtocolLevel(2, 8, 1)))

    with pytest.raises(BadConfig, match=r"from 0\.8\.0 to 2\.8"):
        check_overrides({"message.format.version": "3.0"}, Rules(ProtocolLevel(2, 8, 1)))


def test_remote_storage_needs_brokers_that_have_it() -> None:
    check_overrides({"remote.storage.enable": "true"}, REMOTE)

    with pytest.raises(BadConfig, match="remote-log-storage-system-enable"):
        check_overrides({"remote.storage.enable": "true"}, Rules())


def test_overrides_that_are_stored_already_do_not_block_others() -> None:
    stored = {"once.permitted": "x", "remote.storage.enable": "true", "retention.ms": "many", "flush.ms": "1"}

    check_overrides(stored, Rules(), changed=["flush.ms"])
    with pytest.raises(BadConfig, match=r"min\.compaction\.lag\.ms: 2 is more than"):
        check_overrides({"max.compaction.lag.ms": "1", "min.compaction.lag.ms": "2"}, Rules(), changed=[])
