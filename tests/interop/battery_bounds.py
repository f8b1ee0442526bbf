"""Second part of the battery: null, empty, repeated, unknown and extreme values in each field of requests about topics
and settings, in old versions, and where they are only checked."""

from collections.abc import Iterator
from typing import Any

from kactl.transports.kafka.listener.config_apis import (
    ALTER_CONFIGS_API,
    DESCRIBE_CONFIGS_API,
    INCREMENTAL_ALTER_CONFIGS_API,
)
from kactl.transports.kafka.listener.topic_apis import CREATE_PARTITIONS_API, CREATE_TOPICS_API

from .battery_case import BROKER, INT_MAX, LOGGER, LONG, NOBODY, TIMEOUT_MS, TOPIC, Case

METRICS, GROUP = 16, 32


def topics_and_settings() -> Iterator[Case]:
    for part in (_creations, _growths, _configs):
        yield from part()


def _create(name: str, topics: Any, version: int = 7, *, dry: bool = True, timeout_ms: int = TIMEOUT_MS) -> Case:
    fields = {"topics": topics, "timeout_ms": timeout_ms, "validate_only": dry}
    return Case(f"create: {name}", CREATE_TOPICS_API, version, fields)


def _topic(name: str | None = "%-fresh", count: int = 1, factor: int = 1, **more: Any) -> dict[str, Any]:
    counts = {"num_partitions": count, "replication_factor": factor}
    return {"name": name, "assignments": [], "configs": [], **counts, **more}


def _config(*pairs: tuple[str | None, str | None]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in pairs]


def _creations() -> Iterator[Case]:
    for version in (0, 4, 5, 7):
        yield _create(f"null list of topics, version {version}", None, version)
        yield _create(f"null name, version {version}", [_topic(None)], version)
        yield _create(f"null assignments, version {version}", [_topic(assignments=None)], version)
        yield _create(f"null settings, version {version}", [_topic(configs=None)], version)
    yield _create("null replicas", [_placed((0, None))])
    yield _create("null name of a setting", [_topic(configs=_config((None, "1")))])
    for version in (1, 2, 3):
        yield _create(f"default count of partitions, version {version}", [_topic(count=-1)], version)
        yield _create(f"default count of replicas, version {version}", [_topic(factor=-1)], version)
        yield _create(f"both defaults, version {version}", [_topic(count=-1, factor=-1)], version)
    yield _create("default count of partitions", [_topic(count=-1)])
    yield _create("default count of replicas", [_topic(factor=-1)])
    yield _create("smallest counts", [_topic(count=-(2**31), factor=-(2**15))])
    yield _create("most replicas", [_topic(factor=2**15 - 1)])
    yield _create("setting twice, equal", [_topic(configs=_config(*[("retention.ms", "5")] * 2))])
    for name, values in (("different", "56"), ("first invalid", "x6"), ("last invalid", "5x")):
        pairs = [("retention.ms", value) for value in values]
        yield _create(f"setting twice, {name}", [_topic(configs=_config(*pairs))])
    yield _create("setting in capitals", [_topic(configs=_config(("RETENTION.MS", "5")))])
    yield _create("setting with a space", [_topic(configs=_config((" retention.ms", "5")))])
    yield _create("setting of brokers", [_topic(configs=_config(("log.retention.ms", "5")))])
    yield _create("long value of a setting", [_topic(configs=_config(("retention.ms", LONG)))])
    yield _create("colliding in one request", [_topic("%.a.b"), _topic("%.a_b")])
    yield _create("equal but for the case", [_topic("%-case"), _topic("%-CASE")], dry=False)
    yield _create("existing, checked only", [_topic("%-placed")])
    yield _create("name with a null character", [_topic("a\0b")])
    yield _create("name with a line break", [_topic("a\nb")])
    yield _create("name with spaces around", [_topic(" a ")])
    yield _create("name outside of the first plane", [_topic("\U0001f600")])
    yield _create("name of 30,000 characters", [_topic(LONG)])
    yield _create("name of a dash", [_topic("-")])
    yield _create("name of underscores", [_topic("___%")])
    yield _create("timeout -1, invalid", [_topic(count=0)], timeout_ms=-1)
    yield _create("timeout 0, checked only", [_topic()], timeout_ms=0)
    yield _create("smallest timeout, checked only", [_topic()], timeout_ms=-(2**31))
    yield _create("largest timeout", [_topic("%-patient")], timeout_ms=INT_MAX, dry=False)
    yield _create("timeout 0, existing", [_topic("%-placed")], dry=False, timeout_ms=0)
    yield _create("timeout 0, version 1", [_topic("%-hasty-1")], 1, dry=False, timeout_ms=0)
    yield _create("assignment of far apart partitions", [_placed((0, [1]), (INT_MAX, [1]))])
    yield _create("assignment in another order", [_placed((1, [2]), (0, [1]))])
    yield _create("assignment, factor only", [_topic("%-fresh", -1, 1, assignments=_assigned((0, [1])))])
    yield _create("ten topics, one of each kind", [
        _topic("%-ten-a"), _topic(""), _topic("%-ten-b", 0), _topic("%-ten-c", 1, 9), _topic("%-placed"),
        _topic("%-ten-d", configs=_config(("what", "1"))), _topic("%-ten-e", -1, -1), _placed((1, [1])),
        _topic("%-ten-f", 2, 2), _topic(".."),
    ])  # fmt: skip


def _assigned(*partitions: tuple[int, list[int] | None]) -> list[dict[str, Any]]:
    return [{"partition_index": index, "broker_ids": brokers} for index, brokers in partitions]


def _placed(*partitions: tuple[int, list[int] | None]) -> dict[str, Any]:
    return _topic("%-fresh", -1, -1, assignments=_assigned(*partitions))


def _growths() -> Iterator[Case]:
    def case(
        name: str, *topics: Any, version: int = 3, dry: bool = True, whole: Any = (), timeout_ms: int = TIMEOUT_MS
    ) -> Case:
        entries = [
            {"name": topic, "count": count,
             "assignments": None if placed is None else [{"broker_ids": brokers} for brokers in placed]}
            for topic, count, placed in topics
        ]  # fmt: skip
        fields = {"topics": entries if whole == () else whole, "timeout_ms": timeout_ms, "validate_only": dry}
        return Case(f"grow: {name}", CREATE_PARTITIONS_API, version, fields)

    for version in (0, 1, 2, 3):
        yield case(f"null list of topics, version {version}", whole=None, version=version)
        yield case(f"null name, version {version}", (None, 5, None), version=version)
        yield case(f"smaller, version {version}", ("%-placed", 1, None), version=version)
        yield case(f"unknown, version {version}", ("%-unknown", 5, None), version=version)
    yield case("null replicas", ("%-placed", 3, [None]))
    yield case("invalid name", ("a b", 5, None))
    yield case("long name", (LONG, 5, None))
    yield case("twice, equal", *[("%-placed", 5, None)] * 2)
    yield case("twice and another", *[("%-placed", 5, None)] * 2, ("%-set", 5, None))
    yield case("three times", *[("%-placed", 5, None)] * 3)
    yield case("unknown twice", *[("%-unknown", 5, None)] * 2)
    yield case("same count, empty assignment", ("%-placed", 2, []))
    yield case("same count, assignment", ("%-placed", 2, [[1, 2]]))
    yield case("smaller, assignment", ("%-placed", 1, [[1, 2]]))
    yield case("unknown, assignment", ("%-unknown", 3, [[1, 2]]))
    yield case("unknown broker and too few", ("%-placed", 5, [[NOBODY, 1]]))
    yield case("more replicas than brokers", ("%-placed", 3, [[1, 2, 3, NOBODY]]))
    yield case("timeout 0, checked only", ("%-placed", 3, None), timeout_ms=0)
    yield case("timeout 0", ("%-set", 4, None), timeout_ms=0, dry=False)
    yield case("timeout -1", ("%-set", 5, None), timeout_ms=-1, dry=False)
    yield case("timeout -1, invalid", ("%-set", 1, None), timeout_ms=-1, dry=False)
    yield case("largest timeout", ("%-patient", 2, None), timeout_ms=INT_MAX, dry=False)


def _configs() -> Iterator[Case]:
    def resource(kind: int, name: str | None, *entries: Any) -> dict[str, Any]:
        fields = [
            {"name": key, "config_operation": operation, "value": value}
            for key, value, operation in ((*entry, 0)[:3] for entry in entries)
        ]
        return {"resource_type": kind, "resource_name": name, "configs": fields}

    valid = ("retention.ms", "9000")
    apis = (("alter", ALTER_CONFIGS_API, (0, 1, 2)), ("change", INCREMENTAL_ALTER_CONFIGS_API, (0, 1)))
    for label, api, versions in apis:
        for name, resources in (
            ("null list of resources", None),
            ("null name", [resource(TOPIC, None, valid)]),
            ("no settings", [resource(TOPIC, "%-patient")]),
            ("null settings", [resource(TOPIC, "%-patient") | {"configs": None}]),
            ("checked only", [resource(TOPIC, "%-patient", valid)]),
            ("empty name of a setting", [resource(TOPIC, "%-patient", ("", "1"))]),
            ("setting twice", [resource(TOPIC, "%-patient", valid, ("retention.ms", "8000"))]),
            ("setting twice, equal", [resource(TOPIC, "%-patient", valid, valid)]),
            ("setting twice, last invalid", [resource(TOPIC, "%-patient", valid, ("retention.ms", "x"))]),
            ("two of which one is invalid", [resource(TOPIC, "%-patient", valid, ("segment.ms", "x"))]),
            ("two resources", [resource(TOPIC, "%-patient", valid), resource(TOPIC, "%-unknown", valid)]),
            ("broker of a negative id", [resource(BROKER, "-1", ("log.cleaner.threads", "1"))]),
            ("broker of a large id", [resource(BROKER, str(2**31), ("log.cleaner.threads", "1"))]),
            ("type 0", [resource(0, "%-patient", valid)]),
            ("negative type", [resource(-1, "%-patient", valid)]),
            ("client metrics", [resource(METRICS, "%-metrics", ("interval.ms", "1000"))]),
            ("group", [resource(GROUP, "%-group", ("consumer.session.timeout.ms", "50000"))]),
            ("logger of an unknown broker", [resource(LOGGER, str(NOBODY), ("kafka", "INFO"))]),
        ):  # fmt: skip
            for version in versions:
                fields = {"resources": resources, "validate_only": True}
                yield Case(f"{label}: {name}, version {version}", api, version, fields)
    # AlterConfigs of a resource that is named twice has no response in Kafka.
    twice = [resource(TOPIC, "%-patient", valid)] * 2
    for name, resources in (("twice", twice), ("twice and another", [*twice, resource(TOPIC, "%-set", valid)])):
        fields = {"resources": resources, "validate_only": True}
        yield Case(f"change: resource {name}", INCREMENTAL_ALTER_CONFIGS_API, 1, fields)
    for name, entry in (
        ("delete what is not set", ("segment.ms", None, 1)), ("delete an unknown name", ("what", None, 1)),
        ("delete with a value", ("retention.ms", "5", 1)), ("append nothing", ("cleanup.policy", None, 2)),
        ("append twice", ("cleanup.policy", "delete,delete", 2)),
        ("append what is invalid", ("cleanup.policy", "x", 2)),
        ("subtract what is not there", ("cleanup.policy", "compact", 3)),
        ("subtract nothing", ("cleanup.policy", None, 3)),
        ("subtract from an unknown list", ("what", "x", 3)), ("append to an unknown list", ("what", "x", 2)),
        ("negative operation", ("retention.ms", "1", -1)), ("set nothing", ("retention.ms", None, 0)),
    ):  # fmt: skip
        fields = {"resources": [resource(TOPIC, "%-patient", entry)], "validate_only": True}
        yield Case(f"change: {name}", INCREMENTAL_ALTER_CONFIGS_API, 1, fields)
    for name, asked in (
        ("null list of resources", None), ("null name", [(TOPIC, None, ["retention.ms"])]), ("no resource", []),
        ("no keys", [(TOPIC, "%-set", [])]), ("unknown key", [(TOPIC, "%-set", ["what"])]),
        ("key twice", [(TOPIC, "%-set", ["retention.ms"] * 2)]), ("empty topic", [(TOPIC, "", ["retention.ms"])]),
        ("invalid topic", [(TOPIC, "a b", ["retention.ms"])]), ("twice", [(TOPIC, "%-set", ["retention.ms"])] * 2),
        ("unknown broker", [(BROKER, str(NOBODY), ["log.cleaner.threads"])]),
        ("type 0", [(0, "x", ["retention.ms"])]), ("negative type", [(-1, "x", ["retention.ms"])]),
        ("client metrics", [(METRICS, "%-metrics", ["interval.ms"])]), ("group", [(GROUP, "%-group", ["x"])]),
        ("logger of an unknown broker", [(LOGGER, str(NOBODY), ["kafka"])]),
    ):  # fmt: skip
        described = None if asked is None else [
            {"resource_type": kind, "resource_name": text, "configuration_keys": keys} for kind, text, keys in asked
        ]  # fmt: skip
        for version in (0, 2, 3, 4):
            yield Case(f"describe: {name}, version {version}", DESCRIBE_CONFIGS_API, version, {"resources": described})
