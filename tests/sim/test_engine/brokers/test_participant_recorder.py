"""What the recorder of a participant knows about its replicas."""

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kactl.decide.messages.broker import PartitionReport
from kactl.model import ReplicaStatus, TopicPartition
from kactl.model.errors import ErrorCode
from kactl.participant.handlers.orders import HandlerState
from kactl.participant.hosted_replicas import HostedReplicas, Role
from kactl.testing.contracts.network import LEAD
from kactl.testing.history import History
from tests.sim.engine.brokers.application import Application
from tests.sim.engine.brokers.entries import StopEntry, state_entries
from tests.sim.engine.brokers.handlers import HandlerApplication
from tests.sim.engine.brokers.leases import LeaseClocks
from tests.sim.engine.brokers.participant_recorder import ParticipantRecorder

NAME = TopicPartition("t", 0)


def test_only_another_deletion_ends_a_failed_one() -> None:
    recorder = ParticipantRecorder(History(lambda: 0.0), Application(1), LeaseClocks())

    def stopped(error: ErrorCode, *, delete: bool) -> bool:
        recorder._stopped([StopEntry(NAME, b"", -2, delete)], {NAME: int(error)}, {"message": 1})
        return NAME in recorder.kept

    assert stopped(ErrorCode.KAFKA_STORAGE_ERROR, delete=True)
    # A deletion that is tried again begins with a request that deletes nothing.
    assert stopped(ErrorCode.KAFKA_STORAGE_ERROR, delete=False)
    assert stopped(ErrorCode.NONE, delete=False)
    assert not stopped(ErrorCode.NONE, delete=True)


@pytest.mark.parametrize(
    ("state", "role", "stays"),
    [
        (HandlerState.STUCK, Role.FOLLOWER, True),
        (HandlerState.BACKING_OFF, Role.FOLLOWER, False),
        (None, Role.FOLLOWER, False),  # a listener has no handlers
        (None, Role.STOPPED, True),
        (None, None, False),
    ],
)
def test_old_request_ends_no_failure_of_a_replica_out_of_use(
    monkeypatch: pytest.MonkeyPatch, state: HandlerState | None, role: Role | None, stays: bool
) -> None:
    recorder = ParticipantRecorder(History(lambda: 0.0), Application(1), LeaseClocks())
    hosting = None if state is None else SimpleNamespace(state=lambda name: state)
    view = None if role is None else SimpleNamespace(role=role)
    hosted = SimpleNamespace(view=lambda name: view)
    leases = SimpleNamespace(_failed=set())
    incarnation = SimpleNamespace(_hosting=hosting, hosted=hosted, _listener_leases=leases)
    monkeypatch.setattr(recorder, "_incarnation", incarnation)
    names = [entry.name for entry in state_entries(LEAD.states)]

    def failed_after(error: ErrorCode) -> bool:
        recorder._served(LEAD, dict.fromkeys(names, int(error)), {"message": 1})
        return names[0] in recorder.failed

    assert failed_after(ErrorCode.KAFKA_STORAGE_ERROR)
    assert failed_after(ErrorCode.STALE_CONTROLLER_EPOCH) is stays
    assert not failed_after(ErrorCode.NONE)

    # Reported; the order waits for the next lease.
    leases._failed.add(names[0])
    assert failed_after(ErrorCode.KAFKA_STORAGE_ERROR)
    assert failed_after(ErrorCode.NONE)


def test_directory_that_fails_during_an_order_is_no_effect_of_the_order() -> None:
    history = History(lambda: 0.0)
    recorder = ParticipantRecorder(history, HandlerApplication(1, history, random.Random(0)), LeaseClocks())
    hosted = HostedReplicas()
    incarnation: Any = SimpleNamespace(hosted=hosted)
    names = [entry.name for entry in state_entries(LEAD.states)]
    hosted.apply(LEAD.states, np.ones(len(names), np.bool_), Role.LEADER)
    before = recorder._before(incarnation, LEAD)

    hosted.fail(names)

    assert recorder._applied(incarnation, before) == set()


def test_handler_that_is_ready_again_ends_no_failure_of_a_directory() -> None:
    history, reports = History(lambda: 0.0), list[PartitionReport]()
    recorder = ParticipantRecorder(history, Application(1), LeaseClocks())
    incarnation: Any = SimpleNamespace(
        broker=1, reporter=SimpleNamespace(add=reports.append), _listener_leases=SimpleNamespace()
    )
    recorder._watch_reports(incarnation)

    for is_in_directory in (False, True):
        if is_in_directory:
            recorder.directories.add(NAME)
        for status in (ReplicaStatus.FAILED, ReplicaStatus.READY):
            incarnation.reporter.add(PartitionReport(NAME, 0, status))

        assert (NAME in recorder.failed) is is_in_directory

    assert [event.fields["status"] for event in history.events] == ["FAILED", "READY", "FAILED"]
    assert len(reports) == 4
