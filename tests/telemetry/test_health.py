"""Health checks computed from facts: result, limit and remedy of each check."""

from typing import Any

import msgspec
import pytest

from kactl.config.settings import HealthConfig
from kactl.telemetry.health import Channel, Check, Facts, FailedHandler, Limits, Partitions, Stuck, checks, status_of
from tests.support import tree

PARTITIONS = Partitions(
    total=1000,
    offline=(0, ()),
    under_replicated=(0, ()),
    under_min_isr=(0, ()),
    min_isr_unknown=0,
    not_preferred=0,
    lagging=(),
)
HEALTHY = Facts(
    active_id=1,
    is_active=True,
    ready=True,
    partitions=PARTITIONS,
    dead=(),
    channels=(Channel(1, 0, 0.0, ""),),
    reassignments=Stuck(0, 0),
    deletions=Stuck(0, 0),
    without_id=(),
    failed_handlers=(),
    held={},
)
FAILED = FailedHandler("a-0", 2, "its handler has failed (lead: boom)")
STUCK = FailedHandler("a-1", 3, "a call of its handler does not end", "restart the process of broker 3")


def with_fields(facts: Facts, **fields: Any) -> Facts:
    own = {name: fields.pop(name) for name in list(fields) if name in PARTITIONS.__struct_fields__}
    if own:
        fields["partitions"] = msgspec.structs.replace(PARTITIONS, **own)
    return msgspec.structs.replace(facts, **fields)


def one_check(facts: Facts, name: str, **limits: int) -> Check:
    (result,) = [item for item in checks(facts, Limits(**limits)) if item.name == name]
    return result


def test_facts_without_failures_are_healthy() -> None:
    results = checks(HEALTHY, Limits())

    assert {item.result for item in results} == {"pass", "skip"}
    assert status_of(results) == "healthy"
    assert not any(item.remedy for item in results)
    assert {item.name for item in results if item.result == "skip"} == {
        "shards-without-owner",
        "standby-lag",
        "broker-listeners",
        "admin-clients",
        "broker-racks",
        "certificates",
    }


@pytest.mark.parametrize(
    ("name", "fields", "result", "detail"),
    [
        ("one-active-controller", {"active_id": None, "is_active": False}, "fail", "no instance is known"),
        ("one-active-controller", {"ready": False}, "warn", "controller 1 is taking over"),
        ("store-session", {"session": "not heard of"}, "fail", "not heard of"),
        ("offline-partitions", {"offline": (3, ("a-0", "a-1"))}, "fail", "a-0, a-1 and 1 more"),
        ("under-min-isr", {"under_min_isr": (1, ("a-0",))}, "fail", "a-0"),
        ("under-min-isr", {"min_isr_unknown": 7}, "unknown", "of 7 partitions could not be read"),
        ("under-min-isr", {"under_min_isr": (1, ("a-0",)), "min_isr_unknown": 7}, "fail", "a-0; min.insync"),
        ("under-replicated", {"under_replicated": (2, ("a-0",)), "lagging": ((3, 2),)}, "warn", "on brokers 3 (2)"),
        ("preferred-imbalance", {"not_preferred": 101}, "warn", "101 of 1,000"),
        ("preferred-imbalance", {"not_preferred": 100}, "pass", ""),
        ("unreachable-brokers", {"dead": (4,)}, "fail", "not registered: 4"),
        (
            "unreachable-brokers",
            {"channels": (Channel(2, 1, 10_001.0, "refused"),)},
            "fail",
            "broker 2 does not answer",
        ),
        ("unreachable-brokers", {"channels": (Channel(2, 1, 9_999.0, "refused"),)}, "pass", ""),
        ("unreachable-brokers", {"channels": (Channel(2, 1, 99_999.0, ""),)}, "pass", ""),
        ("drained-brokers", {"drained": (2,)}, "warn", "2"),
        ("held-instances", {"held": {7: "is held since noon"}}, "warn", "instance 7 is held since noon"),
        (
            "failed-handlers",
            {"failed_handlers": (FAILED,)},
            "warn",
            "a-0 on broker 2: its handler has failed (lead: boom)",
        ),
        ("failed-handlers", {"failed_handlers": (STUCK, FAILED)}, "fail", "a-1 on broker 3: a call of its handler"),
        ("failed-handlers", {"failed_handlers": (FAILED,) * 12}, "warn", "; and 9 more"),
        ("failed-handlers", {"failed_handlers": None}, "skip", "only the controller"),
        ("broker-request-backlog", {"channels": (Channel(2, 101, 5.0, "slow"),)}, "warn", "broker 2: slow"),
        ("broker-request-backlog", {"channels": None}, "skip", "only the controller"),
        ("event-queue-oldest", {"queue_oldest_ms": 501.0}, "warn", "depth"),
        ("event-queue-oldest", {"queue_oldest_ms": 30_001.0}, "fail", "depth"),
        (
            "event-queue-oldest",
            {"in_hand": "BrokerChange", "in_hand_ms": 30_001.0},
            "fail",
            "BrokerChange handled for",
        ),
        ("stuck-reassignments", {"reassignments": Stuck(1, 5, (("a-0", "broker 3"),))}, "fail", "a-0: broker 3"),
        ("stuck-reassignments", {"reassignments": Stuck(0, 5)}, "pass", "5 in progress"),
        ("stuck-deletions", {"deletions": Stuck(1, 1, (("a", "start broker 3"),))}, "fail", "a: start broker 3"),
        ("certificates", {"certificates": (("api: c.pem", 14.1),)}, "pass", ""),
        ("certificates", {"certificates": (("api: c.pem", 14.0), ("kafka: k.pem", 99.0))}, "warn", "api: c.pem"),
        ("certificates", {"certificates": (("api: c.pem", -0.1), ("kafka: k.pem", 3.0))}, "fail", "api: c.pem; kafka"),
        ("admin-clients", {"without_controller": ("listener B: use A",)}, "pass", "listener B: use A"),
        ("broker-racks", {"without_rack": ""}, "pass", ""),
        ("broker-racks", {"without_rack": "broker 1 without"}, "warn", "broker 1 without"),
        ("broker-listeners", {"listener_mismatches": ()}, "pass", ""),
        ("broker-listeners", {"listener_mismatches": ("A is SSL there", "B, too")}, "warn", "A is SSL there; B, too"),
        ("topic-ids", {"without_id": ("a", "b")}, "warn", "a, b"),
        ("standby-lag", {"is_active": False, "standby_lag_ms": 10_001.0}, "warn", ""),
        ("standby-lag", {"is_active": False, "standby_lag_ms": 10_000.0}, "pass", ""),
        ("offline-partitions", {"partitions": None, "unknown": "there is no copy"}, "unknown", "there is no copy"),
    ],
)
def test_each_check_fails_by_its_own_value(name: str, fields: dict[str, Any], result: str, detail: str) -> None:
    outcome = one_check(with_fields(HEALTHY, **fields), name)

    assert outcome.result == result
    assert detail in outcome.detail
    assert bool(outcome.remedy) == (result in ("fail", "warn"))


@pytest.mark.parametrize(
    ("limits", "fields", "name"),
    [
        ({"offline_partitions": 3}, {"offline": (3, ("a-0",))}, "offline-partitions"),
        ({"under_min_isr": 1}, {"under_min_isr": (1, ("a-0",))}, "under-min-isr"),
        ({"unreachable_brokers": 1}, {"dead": (4,)}, "unreachable-brokers"),
        ({"event_queue_oldest_ms": 600}, {"queue_oldest_ms": 501.0}, "event-queue-oldest"),
        ({"broker_request_backlog": 101}, {"channels": (Channel(2, 101, 5.0, ""),)}, "broker-request-backlog"),
    ],
)
def test_value_passes_with_a_higher_limit(limits: dict[str, int], fields: dict[str, Any], name: str) -> None:
    facts = with_fields(HEALTHY, **fields)

    assert one_check(facts, name).result in ("warn", "fail")
    assert one_check(facts, name, **limits).result == "pass"


def test_status_is_the_worst_result() -> None:
    warned = checks(with_fields(HEALTHY, drained=(2,)), Limits())
    failed = checks(with_fields(HEALTHY, drained=(2,), dead=(3,)), Limits())

    assert status_of(warned) == "degraded"
    assert status_of(failed) == "unhealthy"


def test_limits_and_configuration_have_the_same_defaults() -> None:
    from kactl.admin.health_facts import limits_of

    assert limits_of(HealthConfig()) == Limits()


def test_each_check_stands_in_the_runbook() -> None:
    page = (tree.ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")

    assert [check.name for check in checks(HEALTHY, Limits()) if f"\n| `{check.name}` |" not in page] == []
