"""A server with a full disk reports the error and no change that was not stored, and recovers when space is free."""

import contextlib
import os
import resource
import urllib.error
import urllib.request
from collections.abc import Iterator

import msgspec

from kactl.admin.schema import ClusterInfo, EventPage, Probe, RequestEvent, TopicInfo
from tests.support.api_access import opened

from .server import Up

REASON = "quarterly growth"


@contextlib.contextmanager
def no_file_may_grow(up: Up) -> Iterator[None]:
    """Simulate a full disk: the store's log cannot grow. Smaller files, such as the server's log, can."""
    before = resource.prlimit(up.process.pid, resource.RLIMIT_FSIZE)
    full = (up.data_dir / "kactl.db-wal").stat().st_size
    assert full > 4 * up.process.output.stat().st_size
    resource.prlimit(up.process.pid, resource.RLIMIT_FSIZE, (full, before[1]))
    try:
        yield
    finally:
        resource.prlimit(up.process.pid, resource.RLIMIT_FSIZE, before)


def ready(up: Up) -> tuple[int, Probe]:
    try:
        with opened(f"{up.url}/readyz") as response:
            return response.status, msgspec.json.decode(response.read(), type=Probe)
    except urllib.error.HTTPError as refused:
        return refused.code, msgspec.json.decode(refused.read(), type=Probe)


def audit_lines(up: Up, topic: str) -> list[str]:
    """Returns the audit lines of a topic, without time and level."""
    lines = (line.partition("kactl.admin.audit: ")[2] for line in up.process.text.splitlines())
    return [line for line in lines if f" topic {topic}: " in line]


def test_topic_rejected_by_a_full_disk_is_not_reported_as_created(patient_up: Up) -> None:
    up = patient_up
    with no_file_may_grow(up):
        failed = up("topic", "create", "lost", "--reason", REASON)

        assert failed.code == 1
        assert "disk I/O error: check its disk" in failed.err
        up.until(lambda: ready(up)[0] == 503, "the readiness probe fails")
        status = ready(up)[1]
        health = up("status", "-o", "json")

    assert health.code == 4
    (session,) = [check for check in health.json(ClusterInfo).checks if check.name == "store-session"]
    assert session.result == "fail"
    assert "disk I/O error" in session.detail
    assert status.status == "failing"
    assert status.detail.startswith(f"the store cannot be used: {up.data_dir / 'kactl.db'}: disk I/O error: check")
    (line,) = audit_lines(up, "lost")
    assert line.startswith("create topic lost: unknown (")
    up.until(
        lambda: ready(up) == (200, Probe(status="ok", detail="this instance is the controller")),
        "the store can be written again",
    )
    assert up("get", "topics", "-o", "jsonl").jsonl(TopicInfo) == []


def test_reasons_are_logged_by_default_and_recorded_in_events(own_up: Up) -> None:
    own_up("topic", "create", "orders", "--reason", REASON)
    own_up("topic", "add-partitions", "orders", "--partitions", "2", "--reason", "more keys")
    own_up("broker", "kill", "1", "--reason", "a game day")

    assert audit_lines(own_up, "orders") == [
        f"create topic orders: done; requested over the API by unix:uid={os.geteuid()}, reason: {REASON}",
        f"change topic orders: done; requested over the API by unix:uid={os.geteuid()}, reason: more keys",
    ]
    with opened(f"{own_up.url}/v1/events?kinds=request") as response:
        events = msgspec.json.decode(response.read(), type=EventPage).items
    assert [event.reason for event in events if isinstance(event, RequestEvent)] == [REASON, "more keys", "a game day"]
    shown = own_up("watch", "--since", "0", "--types", "request", "-n", "1").out
    assert f"create topic orders: done  reason: {REASON}" in shown
