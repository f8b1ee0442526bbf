"""`kactl watch`: what happens is printed, once each, also over broken connections and other processes."""

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
    """A `kactl watch` from the first event on, which has shown it."""
    process = Process([*KACTL, "--server", up.url, "watch", "--since", "0", *options], output=output)
    processes.append(process)
    process.wait_for_line("controller +0 elected under epoch", START_S)
    return process


def events(text: str) -> list[AnyEvent]:
    return [msgspec.json.decode(line, type=AnyEvent) for line in text.splitlines()]


def test_changes_are_printed_as_they_happen(up: Up, processes: list[Process], tmp_path: Path) -> None:
    watching = watch(up, processes, tmp_path / "watch.log")

    up("topic", "create", "seen", "--assignment", "0:3,1")
    watching.wait_for_line(r"topic +seen created", START_S)
    watching.wait_for_line(r"partition +seen-0  new -> online  leader 3  epoch 0  isr 3,1", START_S)
    watching.signal(signal.SIGINT)

    assert watching.wait(STOP_S) == 0
    assert "Traceback" not in watching.text


def test_what_is_wanted_is_chosen(up: Up) -> None:
    up("topic", "create", "chosen-1")
    up("topic", "create", "other")

    topics = up("watch", "--since", "0", "--types", "topic", "--topic", "chosen-?", "-n", "1", "-o", "jsonl")
    partitions = up("watch", "--since", "0", "--topic", "chosen*", "--types", "partition", "-n", "2", "-o", "jsonl")

    (created,) = events(topics.out)
    assert topics.code == 0
    assert isinstance(created, TopicEvent)
    assert (created.what, created.topic) == ("created", "chosen-1")
    moved = [each for each in events(partitions.out) if isinstance(each, PartitionEvent)]
    assert [(each.topic, each.to_state) for each in moved] == [("chosen-1", "new"), ("chosen-1", "online")]


def test_a_kind_that_does_not_exist_is_refused(up: Up) -> None:
    refused = up("watch", "--types", "topic,weather")

    assert refused.code == 2
    assert "'weather' is not one of controller, broker, topic, partition, replica, request" in refused.err


def follow_over_a_restart(up: Up, processes: list[Process], folder: Path) -> str:
    """What is shown of two runs, with a topic created in each."""
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


def test_a_restarted_server_is_followed_without_a_gap(own_up: Up, processes: list[Process], tmp_path: Path) -> None:
    said = follow_over_a_restart(own_up, processes, tmp_path)

    assert "connected again\n" in said
    assert "reset" not in said
    for once in (*ONCE, "resigned under epoch 1: asked to resign"):
        assert said.count(once) == 1, once


def test_a_restarted_server_without_a_log_is_followed_from_its_start(processes: list[Process], tmp_path: Path) -> None:
    up = Up(tmp_path, env={**QUICK, "KACTL_LOG__FOLDER": ""})
    try:
        said = follow_over_a_restart(up, processes, tmp_path)
    finally:
        up.close()

    assert "started anew: what has happened since its start follows" in said
    assert "are gone: see the present state" in said
    for once in ONCE:
        assert said.count(once) == 1, once
