"""What the recorder of a participant knows about its replicas."""

from kactl.errors import ErrorCode
from kactl.model import TopicPartition
from kactl.testing.brokers.application import Application
from kactl.testing.brokers.entries import StopEntry
from kactl.testing.brokers.leases import LeaseClocks
from kactl.testing.brokers.participant_recorder import ParticipantRecorder
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
