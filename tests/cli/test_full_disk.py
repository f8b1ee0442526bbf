"""A server whose disk is full: it says so, reports no change that did not happen, and goes on when there is room."""

import contextlib
import resource
import urllib.error
import urllib.request
from collections.abc import Iterator

import msgspec

from kactl.admin.schema import ClusterInfo, EventPage, Probe, RequestEvent, TopicInfo

from .server import Up

REASON = "quarterly growth"


@contextlib.contextmanager
def no_file_may_grow(up: Up) -> Iterator[None]:
    """As on a full disk: the store's log can take no further frame. What is smaller, such as the server's log, can."""
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
        with urllib.request.urlopen(f"{up.url}/readyz", timeout=10) as answer:
            return answer.status, msgspec.json.decode(answer.read(), type=Probe)
    except urllib.error.HTTPError as refused:
        return refused.code, msgspec.json.decode(refused.read(), type=Probe)


def audited(up: Up, topic: str) -> list[str]:
    """The audit lines on a topic, without time and level."""
    found = (line.partition("kactl.admin.audit: ")[2] for line in up.process.text.splitlines())
    return [line for line in found if f" topic {topic}: " in line]


def test_a_topic_that_a_full_disk_rejects_is_not_reported_as_created(patient_up: Up) -> None:
    up = patient_up
    with no_file_may_grow(up):
        failed = up("topic", "create", "lost", "--reason", REASON)

        assert failed.code == 1
        assert "disk I/O error: check its disk" in failed.err
        up.until(lambda: ready(up)[0] == 503, "the probe fails")
        status = ready(up)[1]
        health = up("status", "-o", "json")

    assert health.code == 4
    (session,) = [check for check in health.json(ClusterInfo).checks if check.name == "store-session"]
    assert session.result == "fail"
    assert "disk I/O error" in session.detail
    assert status.status == "failing"
    assert status.detail.startswith(f"the store cannot be used: {up.data_dir / 'kactl.db'}: disk I/O error: check")
    (line,) = audited(up, "lost")
    assert line.startswith("create topic lost: unknown (")
    up.until(lambda: ready(up) == (200, Probe(status="ok", detail="this instance is the controller")), "there is room")
    assert up("get", "topics", "-o", "jsonl").jsonl(TopicInfo) == []


def test_reasons_are_logged_at_the_default_level_and_kept_in_the_events(own_up: Up) -> None:
    own_up("topic", "create", "orders", "--reason", REASON)
    own_up("topic", "grow", "orders", "--partitions", "2", "--reason", "more keys")
    own_up("broker", "kill", "1", "--reason", "a game day")

    assert audited(own_up, "orders") == [
        f"create topic orders: done; requested over the API, reason: {REASON}",
        "change topic orders: done; requested over the API, reason: more keys",
    ]
    with urllib.request.urlopen(f"{own_up.url}/v1/events?kinds=request", timeout=10) as answer:
        events = msgspec.json.decode(answer.read(), type=EventPage).items
    assert [event.reason for event in events if isinstance(event, RequestEvent)] == [REASON, "more keys", "a game day"]
    shown = own_up("watch", "--since", "0", "--types", "request", "-n", "1").out
    assert f"create topic orders: done  reason: {REASON}" in shown
