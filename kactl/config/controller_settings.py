"""Settings of one controller instance, as `kactl.Controller` takes them: in one object, or as keywords."""

import dataclasses
import difflib
from collections.abc import Collection, Mapping
from typing import Any, Final, Self, TypedDict

from kactl.model import Broker

from .protocol_level import LATEST, ProtocolLevel

# A broker waits a minute or two for its controlled shutdown and then flushes its logs. It stops long before this limit.
SHUTDOWN_LIMIT_MS: Final = 600_000
# Planning a chunk of this size takes about 10 ms. Smaller chunks cost more in total; they are used while small events
# arrive at a high rate.
CHUNK_PARTITIONS: Final = 16_384
# `min.insync.replicas` where it is set nowhere.
KAFKA_DEFAULT: Final = 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Settings of one controller instance. They do not change during its life.

        kactl.Controller(1, store=store, settings=kactl.ControllerSettings(auto_balance=False))

    Attributes:
        level: the protocol level of the brokers: whether topics have ids, leaders propose their ISRs, and so on. Text
            such as `3.9` is read as in a broker's configuration.
        supported_features: the lowest and highest level of each feature that may be finalized, by name. Brokers of
            Kafka that keep their cluster in ZooKeeper support none, and stop if one is finalized.
        unclean_leader_election: whether topics without a setting allow unclean elections, while the store has no
            default for all brokers.
        delete_topics: whether topics may be deleted.
        auto_balance: whether preferred replicas are elected automatically when leadership is imbalanced.
        balance_interval_ms: how often the imbalance is checked.
        balance_percentage: for each broker, the percentage of the partitions preferring it that others may lead.
        participant_balance_ms: how long after a participant has joined or returned, or after a takeover, leaderships
            return to the participants that are preferred, if `auto_balance` is set; 0 leaves that to the other checks.
        shutdown_limit_ms: how long a broker that requested a controlled shutdown may stay registered before it is
            eligible as a leader again.
        standby_interval_ms: how often a standby reads changes from the store, so that it has little to read when it
            takes over; 0 disables that.
        take_over: whether the first contest takes the controllership from its holder.
        parity: whether brokers receive exactly the requests of Kafka's controller: one batch per move, however large,
            and every request of it on its own. For comparing the two.
        chunk_partitions: how many partitions of a large change are planned, committed and sent at a time. Brokers
            receive the first requests while the rest is written, and small requests are handled in between. Ignored
            with `parity`.
        listed_as: the entry of this instance in the list of brokers that brokers receive; None if they receive only its
            id.
        controller_ids: ids of other instances. No replica is assigned to them or to this one.
        new_topic_ids: topics that get a new id at a takeover although they have leaders: their ids were lost, and no
            replica has the old one.
        partitions_max: partitions of the cluster; topics and partitions beyond it are not created. Those that exist, or
            that other tools create, are served.
        min_insync_replicas: the brokers' own setting of `min.insync.replicas`, for topics without an override while the
            store has no default for all brokers. Only health checks, lists and previews use it.
        remote_log_storage_system_enable: the brokers' own setting of that name: whether topics may have remote storage.
    """

    level: ProtocolLevel = LATEST
    supported_features: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    unclean_leader_election: bool = False
    delete_topics: bool = True
    auto_balance: bool = True
    balance_interval_ms: int = 300_000
    balance_percentage: int = 10
    participant_balance_ms: int = 3_000
    shutdown_limit_ms: int = SHUTDOWN_LIMIT_MS
    standby_interval_ms: int = 1000
    take_over: bool = False
    parity: bool = False
    chunk_partitions: int = CHUNK_PARTITIONS
    listed_as: Broker | None = None
    controller_ids: frozenset[int] = frozenset()
    new_topic_ids: frozenset[str] = frozenset()
    partitions_max: int = 1_000_000
    min_insync_replicas: int = KAFKA_DEFAULT
    remote_log_storage_system_enable: bool = False

    def __post_init__(self) -> None:
        level: ProtocolLevel | str = self.level
        if isinstance(level, str):
            object.__setattr__(self, "level", ProtocolLevel.parse(level))
        object.__setattr__(self, "supported_features", dict(self.supported_features or {}))
        object.__setattr__(self, "controller_ids", frozenset(self.controller_ids))
        object.__setattr__(self, "new_topic_ids", frozenset(self.new_topic_ids))

    @classmethod
    def of(cls, settings: Self | None, keywords: Mapping[str, Any]) -> Self:
        """Returns the settings that are given as an object, or as keywords.

        Raises:
            TypeError: a keyword is unknown, or is given beside the object, which has a value for it.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        for keyword in keywords:
            if keyword not in names:
                close = difflib.get_close_matches(keyword, names, n=1)
                hint = f"; did you mean {close[0]!r}?" if close else f"; the settings are {', '.join(names)}"
                raise TypeError(f"{keyword!r} is not a setting of a controller{hint}")
            if settings is not None:
                raise TypeError(
                    f"{keyword!r} is given twice: as a keyword, and in `settings`, which has every setting; "
                    f"set it there, or use dataclasses.replace(settings, {keyword}=...)"
                )
        return cls(**keywords) if settings is None else settings


class SettingKeywords(TypedDict, total=False):
    """The fields of `ControllerSettings` as keywords."""

    level: ProtocolLevel | str
    supported_features: Mapping[str, tuple[int, int]] | None
    unclean_leader_election: bool
    delete_topics: bool
    auto_balance: bool
    balance_interval_ms: int
    balance_percentage: int
    participant_balance_ms: int
    shutdown_limit_ms: int
    standby_interval_ms: int
    take_over: bool
    parity: bool
    chunk_partitions: int
    listed_as: Broker | None
    controller_ids: Collection[int]
    new_topic_ids: Collection[str]
    partitions_max: int
    min_insync_replicas: int
    remote_log_storage_system_enable: bool
