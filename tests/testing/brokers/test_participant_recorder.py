"""What the recorder of a participant knows about its replicas."""

from kactl.errors import ErrorCode
from kactl.model import TopicPartition
from kactl.testing.brokers.application import Application
from kactl.testing.brokers.entries import StopEntry, state_entries
from kactl.testing.brokers.leases import LeaseClocks
from kactl.testing.brokers.participant_recorder import ParticipantRecorder
from kactl.testing.contracts.network import LEAD
from kactl.testing.history import History

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


def test_answer_that_a_request_is_old_does_not_end_a_failure() -> None:
    recorder = ParticipantRecorder(History(lambda: 0.0), Application(1), LeaseClocks())
    names = [entry.name for entry in state_entries(LEAD.states)]

    def failed_after(error: ErrorCode) -> bool:
        recorder._served(LEAD, dict.fromkeys(names, int(error)), {"message": 1})
        return names[0] in recorder.failed

    assert failed_after(ErrorCode.KAFKA_STORAGE_ERROR)
    assert failed_after(ErrorCode.STALE_CONTROLLER_EPOCH)
    assert failed_after(ErrorCode.INCONSISTENT_TOPIC_ID)
    assert not failed_after(ErrorCode.NONE)
