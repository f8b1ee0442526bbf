"""`kactl watch`: every event is printed once, also after broken connections and restarts of the server."""

import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kactl.admin.schema import AnyEvent, PartitionEvent, TopicEvent
from tests.support.processes import Process

from .server import KACTL, QUICK, START_S, STOP_S, Up


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    started: list[Process] = []
    yield started
    for process in started:
        process.kill()


def watch(up: Up, processes: list[Process], output: Path, *options: str) -> Process:
    """Start `kactl watch` at the first event, and wait until it is printed."""
    process = Process([*KACTL, "--server", up.url, "watch", "--since", "0", *options], output=output)
    processes.append(process)
    process.wait_for_line("controller +0 elected under epoch", START_S)
    return process


def decoded_events(text: str) -> list[AnyEvent]:
    return [msgspec.json.decode(line, type=AnyEvent) for line in text.splitlines()]


def test_changes_are_printed_as_they_occur(up: Up, processes: list[Process], tmp_path: Path) -> None:
    watching = watch(up, processes, tmp_path / "watch.log")

    up("topic", "create", "seen", "--assignment", "0:3,1")
    watching.wait_for_line(r"topic +seen created", START_S)
    watching.wait_for_line(r"partition +seen-0  new -> online  leader 3  epoch 0  isr 3,1", START_S)
    watching.signal(signal.SIGINT)

    assert watching.wait(STOP_S) == 0
    assert "Traceback" not in watching.text


def test_events_are_filtered_by_kind_and_topic(up: Up) -> None:
    up("topic", "create", "chosen-1")
    up("topic", "create", "other")

    topics = up("watch", "--since", "0", "--types", "topic", "--topic", "chosen-?", "-n", "1", "-o", "jsonl")
    partitions = up("watch", "--since", "0", "--topic", "chosen*", "--types", "partition", "-n", "2", "-o", "jsonl")

    (created,) = decoded_events(topics.out)
    assert topics.code == 0
    assert isinstance(created, TopicEvent)
    assert (created.what, created.topic) == ("created", "chosen-1")
    changes = [event for event in decoded_events(partitions.out) if isinstance(event, PartitionEvent)]
    assert [(event.topic, event.to_state) for event in changes] == [("chosen-1", "new"), ("chosen-1", "online")]


def test_unknown_kind_is_rejected(up: Up) -> None:
    refused = up("watch", "--types", "topic,weather")

    assert refused.code == 2
    assert "'weather' is not one of controller, broker, topic, partition, replica, handler, request" in refused.err


def follow_over_a_restart(up: Up, processes: list[Process], folder: Path) -> str:
    """Returns the output over two runs of the server, with a topic created in each."""
    watching = watch(up, processes, folder / "watch.log")
    up("topic", "create", "before")
    watching.wait_for_line("before-0  new -> online", START_S)

    up.process.stop(STOP_S)
    watching.wait_for_line("trying again every", START_S)
    up.start()
    up("topic", "create", "after")
    watching.wait_for_line("after-0  new -> online", START_S)
    return watching.text


ONCE = ("elected under epoch 1", "elected under epoch 2", "topic       after created", "topic       before created")


def test_restarted_server_is_followed_without_a_gap(own_up: Up, processes: list[Process], tmp_path: Path) -> None:
    text = follow_over_a_restart(own_up, processes, tmp_path)

    assert "connected again\n" in text
    assert "reset" not in text
    for line in (*ONCE, "resigned under epoch 1: asked to resign"):
        assert text.count(line) == 1, line


@pytest.mark.slow
def test_restarted_server_without_log_is_followed_from_its_start(processes: list[Process], tmp_path: Path) -> None:
    up = Up(tmp_path, env={**QUICK, "KACTL_LOG__FOLDER": ""})
    try:
        text = follow_over_a_restart(up, processes, tmp_path)
    finally:
        up.close()

    assert "to a restarted server: the events since its start follow" in text
    assert "are lost: read the present state" in text
    for line in ONCE:
        assert text.count(line) == 1, line
