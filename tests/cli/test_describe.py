"""`kactl describe`, `kactl get events`, and their repetition with `--watch`."""

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from kactl.admin.schema import PartitionEvent
from kactl.cli.moments import SINCE, Since

from .server import KACTL, Up, _environment, kactl


def create(up: Up, name: str) -> None:
    done = up("topic", "create", name, "--assignment", "0:1,2,3", "--assignment", "1:2,3,1", "--config", "a.b=c")
    assert done.code == 0 or "exists" in done.err


def test_partition_is_described_with_its_causes(up: Up) -> None:
    create(up, "told")

    shown = up("describe", "partition", "told-0")

    assert shown.code == 0, shown.err
    lines = shown.out.splitlines()
    assert any(line.split() == ["leader", "1"] for line in lines)
    assert any(line.split() == ["isr", "1,2,3"] for line in lines)
    assert any(line.startswith("told-0: ") for line in lines)
    caller = f"unix:uid={os.getuid()}"
    assert any("absent -> new" in line and line.endswith(f"because of TopicChange for {caller}") for line in lines)
    assert "REPLICA" in shown.out


def test_documents_have_all_parts(up: Up) -> None:
    create(up, "told")
    parts = {
        ("partition", "told-0"): {"partition", "explanation", "events"},
        ("topic", "told"): {"topic", "config", "explanation", "partitions"},
        ("broker", "1"): {"broker", "stoppable", "out_of_sync", "events"},
        ("controller",): {"controller", "cluster", "queue", "terms"},
    }

    for arguments, expected in parts.items():
        document = up("describe", *arguments, "-o", "json").json(dict[str, Any])
        assert document.keys() == expected
        assert all(document[part] is not None for part in expected)


def test_broker_topic_and_controller_are_described(up: Up) -> None:
    create(up, "told")

    broker = up("describe", "broker", "2").out
    topic = up("describe", "topic", "told").out
    controller = up("describe", "controller").out

    assert "can stop" in broker
    assert "a.b=c" in topic
    assert "told-1  " in topic
    assert "Controllers, newest last:" in controller
    assert "epoch 1: controller" in controller


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["partition", "told"], 2, "error: 'told' is not the name of a partition: write it as orders-0\n"),
        (["partition", "gone-0"], 1, "gone"),
        (["topic", "gone"], 1, "gone"),
        (["broker", "99"], 1, "99"),
        (["reassignment", "gone-0"], 1, "gone-0: no reassignment of it is in progress"),
    ],
)
def test_unknown_things_are_errors(up: Up, arguments: list[str], code: int, message: str) -> None:
    done = up("describe", *arguments)

    assert done.code == code
    assert message in done.err


def test_recent_events_are_listed_and_filtered(up: Up) -> None:
    create(up, "told")

    every = up("get", "events", "--since", "1h", "-o", "jsonl", "-n", "10000")
    some = up("get", "events", "--since", "1h", "--types", "partition", "--topic", "tol*", "-o", "json")
    last = up("get", "events", "--since", "0", "-n", "1")
    later = up("get", "events", "--since", "2099-01-01T00:00:00+00:00")

    assert len(every.out.splitlines()) > 5
    events = some.json(list[PartitionEvent])
    assert {event.topic for event in events} == {"told"}
    assert [event.seq for event in events] == sorted(event.seq for event in events)
    assert len(last.out.splitlines()) == 1
    assert (later.code, later.out) == (0, "")
    assert later.err == "There are no such events in this time.\n"


def test_watch_starts_at_a_time(up: Up) -> None:
    create(up, "told")

    done = up("watch", "--since", "1h", "--types", "topic", "-n", "1", "-o", "jsonl")

    assert done.code == 0, done.err
    assert '"kind":"topic"' in done.out


@pytest.mark.parametrize(
    "text", ["x", "-1", "10", "10m", "2026-11-23T14:05:00", "2026-11-23T14:05:00+01:00", "10y", ""]
)
def test_beginnings_are_numbers_times_or_ages(text: str) -> None:
    if text in ("x", "-1", "10y", ""):
        with pytest.raises(Exception, match="is not an event number, a time"):
            SINCE.convert(text, None, None)
        return
    before_ms = int(time.time() * 1000)
    since = SINCE.convert(text, None, None)
    after_ms = time.time() * 1000 + 1  # it may be rounded up
    if text == "10":
        assert since == Since(10)
    elif text == "10m":
        assert before_ms <= since.time_ms + 600_000 <= after_ms
    else:
        assert since.time_ms is not None


@pytest.mark.slow  # a process of its own, which repeats
def test_lists_repeat_with_watch(up: Up) -> None:
    command = [*KACTL, "--server", up.url, "get", "brokers", "--watch", "--interval", "0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=_environment(None), text=True) as process:
        assert process.stdout is not None
        headers = 0
        for line in process.stdout:
            headers += line.startswith("ID")
            if headers == 3:
                break
        process.terminate()
    assert headers == 3


def test_watch_waits_for_a_server_that_is_away(tmp_path: Path) -> None:
    done = kactl("--server", "http://127.0.0.1:1", "get", "brokers", "--interval", "0")

    assert done.code == 2
    assert "--interval" in done.err
