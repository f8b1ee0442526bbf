"""Settings of topics: their names, their valid values, and the level at which brokers know them.

A broker that reads an invalid override from the store fails for every partition of the topic, and for all partitions of
the same request. It ignores an override with an unknown name, so that a misspelled one would be stored without any
effect. Neither may therefore be stored. Programs whose participants host all replicas may use names of their own.

The bounds are those of Kafka 3.9 at every level: below 3.3 brokers accept some smaller numbers, which make a later
version of them fail.

Source: LogConfig, TopicConfig.
"""

import difflib
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from kactl.model import STANDBY
from kactl.model.errors import BadConfig

from . import topic_values as values
from .protocol_level import LATEST, ProtocolLevel

UNCLEAN_ELECTIONS: Final = "unclean.leader.election.enable"
# Whether a new leader waits until the lease of the earlier one has ended. kactl's own: Kafka's brokers have no leases.
LEASE: Final = "leadership.lease"
STANDBY_MAX: Final = 100
_OWN: Final = (LEASE, STANDBY)  # Kafka's brokers do not know these
_FIRST: Final = ProtocolLevel(2, 6)
_REMOTE: Final = "remote.storage.enable"
_COMPRESSIONS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_POLICIES: Final = ("compact", "delete")
_TIMESTAMPS: Final = ("CreateTime", "LogAppendTime")
_BOOLEANS: Final = ("true", "false")
# What `retention.ms` and `retention.bytes` are where nothing is set.
_RETENTIONS: Final = {"ms": 604_800_000, "bytes": -1}
# An own name may not be as similar as this to a known one: it is misspelled.
_SIMILAR: Final = 0.9


class Setting(NamedTuple):
    """One setting of topics.

    Attributes:
        check: of its value.
        since: the first level at which every broker knows it.
        examples: values that a shell completes; all of them if they are few.
    """

    check: values.Check
    since: ProtocolLevel = _FIRST
    examples: tuple[str, ...] = ()


class Rules(NamedTuple):
    """What a cluster permits.

    Attributes:
        level: of the brokers.
        has_remote_storage: whether brokers have it; Kafka's remote.log.storage.system.enable.
        own_names: whether names that are not known are permitted, because no broker of Kafka's reads them.
    """

    level: ProtocolLevel = LATEST
    has_remote_storage: bool = False
    own_names: bool = False


# Far more than Kafka knows, and than a program of its own needs; each is compared with all known names.
OVERRIDES_MAX: Final = 1_000


def check_overrides(config: Mapping[str, str], rules: Rules, *, changed: Collection[str] | None = None) -> None:
    """Decide whether overrides may be stored.

    Args:
        config: all overrides of a topic.
        changed: the names of those that a request sets; all if None. The others are stored already, perhaps by another
            tool, and are only compared with these.

    Raises:
        BadConfig: they may not; the message names the first that is wrong.
    """
    if len(config) > OVERRIDES_MAX:
        raise BadConfig("config", f"{len(config)} overrides: a topic has at most {OVERRIDES_MAX}")
    for name in config if changed is None else changed:
        reason = _name_error(name, rules) or _value_error(name, config[name], rules)
        if reason:
            raise BadConfig("config", f"{name}: {reason}")
    conflict = _conflict(config, rules, config if changed is None else changed)
    if conflict:
        raise BadConfig("config", conflict)


def is_leased(config: Mapping[str, str]) -> bool:
    """Returns whether new leaders of a topic with these overrides wait for earlier ones: unless it is forbidden."""
    return config.get(LEASE, "").strip().lower() != "false"


def standbys(config: Mapping[str, str]) -> int:
    """Returns how many participants follow each partition of an ownership topic with these overrides."""
    number = values.whole(config.get(STANDBY, ""))
    return 0 if number is None else min(max(number, 0), STANDBY_MAX)


def _name_error(name: str, rules: Rules) -> str:
    setting = SETTINGS.get(name)
    if setting is None or (name in _OWN and not rules.own_names):
        close = difflib.get_close_matches(name, SETTINGS, n=1, cutoff=_SIMILAR if rules.own_names else 0.6)
        if rules.own_names and not close:
            return ""
        return "topics have no such setting" + (f"; did you mean {close[0]}?" if close and close != [name] else "")
    if setting.since > rules.level:
        return (
            f"brokers know this setting from level {setting.since.major}.{setting.since.minor} on, and the cluster's "
            f"is {rules.level.major}.{rules.level.minor}: upgrade the brokers, then raise kafka.ibp"
        )
    return ""


def _value_error(name: str, text: str, rules: Rules) -> str:
    setting = SETTINGS.get(name)
    check = values.message_format(rules.level) if name == _FORMAT else None if setting is None else setting.check
    valid = None if check is None else check(text)
    return "" if valid is None else f"{text!r} is not valid; it must be {valid}"


def _conflict(config: Mapping[str, str], rules: Rules, changed: Collection[str]) -> str:
    """Returns why valid overrides cannot be together, or in this cluster; an empty text if they can."""
    least, most = (values.whole(config.get(f"{which}.compaction.lag.ms", "")) for which in ("min", "max"))
    if least is not None and most is not None and least > most:
        return f"min.compaction.lag.ms: {least} is more than max.compaction.lag.ms, which is {most}"
    if not values.is_true(config.get(_REMOTE, "")):
        return ""
    if not rules.has_remote_storage and _REMOTE in changed:
        return (
            f"{_REMOTE}: brokers have no remote storage: if all of them have remote.log.storage.system.enable=true, "
            "write kafka.remote-log-storage-system-enable = true in kactl's configuration"
        )
    if "compact" in values.items(config.get("cleanup.policy", "")):
        return f"{_REMOTE}: a compacted topic cannot have remote storage: write cleanup.policy=delete"
    for unit, default in _RETENTIONS.items():
        total = values.whole(config.get(f"retention.{unit}", str(default)))
        local = values.whole(config.get(f"local.retention.{unit}", "-2"))
        # -2 is the total itself, and -1 no limit.
        if total not in (None, -1) and local not in (None, -2) and (local == -1 or local > total):
            return f"local.retention.{unit}: {local} is more than retention.{unit}, which is {total}"
    return ""


def _only_false(text: str) -> str | None:
    return "false: brokers with ZooKeeper do not support it" if values.boolean(text) or values.is_true(text) else None


def _of(*texts: str, check: Callable[..., values.Check] = values.one_of) -> Setting:
    return Setting(check(*texts), examples=texts)


_FORMAT: Final = "message.format.version"
_BOOLEAN: Final = Setting(values.boolean, examples=_BOOLEANS)
_SIZE: Final = Setting(values.number(0, bits=32))
_TIME: Final = Setting(values.number(0))
_V3_0: Final = ProtocolLevel(3, 0)
_V3_6: Final = ProtocolLevel(3, 6)
_V3_8: Final = ProtocolLevel(3, 8)
_V3_9: Final = ProtocolLevel(3, 9)

SETTINGS: Final[Mapping[str, Setting]] = {
    LEASE: _BOOLEAN,
    STANDBY: Setting(values.number(0, STANDBY_MAX)),
    UNCLEAN_ELECTIONS: _BOOLEAN,
    "cleanup.policy": _of(*_POLICIES, check=values.some_of),
    "compression.gzip.level": Setting(values.number(1, 9, also=-1), _V3_8),
    "compression.lz4.level": Setting(values.number(1, 17), _V3_8),
    "compression.type": _of(*_COMPRESSIONS),
    "compression.zstd.level": Setting(values.number(-131_072, 22), _V3_8),
    "delete.retention.ms": _TIME,
    "file.delete.delay.ms": _TIME,
    "flush.messages": Setting(values.number(1)),
    "flush.ms": _TIME,
    "follower.replication.throttled.replicas": Setting(values.throttled, examples=("*",)),
    "index.interval.bytes": _SIZE,
    "leader.replication.throttled.replicas": Setting(values.throttled, examples=("*",)),
    "local.retention.bytes": Setting(values.number(-2), _V3_0),
    "local.retention.ms": Setting(values.number(-2), _V3_0),
    "max.compaction.lag.ms": Setting(values.number(1)),
    "max.message.bytes": _SIZE,
    "message.downconversion.enable": _BOOLEAN,
    _FORMAT: Setting(values.message_format(LATEST)),
    "message.timestamp.after.max.ms": Setting(_TIME.check, _V3_6),
    "message.timestamp.before.max.ms": Setting(_TIME.check, _V3_6),
    "message.timestamp.difference.max.ms": _TIME,
    "message.timestamp.type": _of(*_TIMESTAMPS),
    "min.cleanable.dirty.ratio": Setting(values.ratio),
    "min.compaction.lag.ms": _TIME,
    "min.insync.replicas": Setting(values.number(1, bits=32)),
    "preallocate": _BOOLEAN,
    "remote.log.copy.disable": Setting(_only_false, _V3_9, ("false",)),
    "remote.log.delete.on.disable": Setting(_only_false, _V3_9, ("false",)),
    _REMOTE: Setting(values.boolean, _V3_0, _BOOLEANS),
    "retention.bytes": Setting(values.number(-(2**63))),
    "retention.ms": Setting(values.number(-1)),
    "segment.bytes": Setting(values.number(14, bits=32)),
    "segment.index.bytes": Setting(values.number(4, bits=32)),
    "segment.jitter.ms": _TIME,
    "segment.ms": Setting(values.number(1)),
}
