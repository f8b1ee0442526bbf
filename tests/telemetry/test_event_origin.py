"""Requests that were written into the store, and the events that read them back."""

from kactl.decide.messages.log import Cause
from kactl.runtime.clock import SystemClock
from kactl.telemetry.event_record import EventRecord
from kactl.telemetry.event_records import StoredRequests


def trace(event: int, request: str = "") -> EventRecord:
    caller = "token:ada" if request else ""
    return EventRecord(SystemClock(), Cause(event, "Test", request=request, caller=caller))


def read_back(stored: StoredRequests, *topics: str) -> Cause | None:
    reader = trace(9)
    stored.read_back("creation", topics, reader)
    return reader.because


def test_event_names_the_request_that_it_carries_out() -> None:
    stored = StoredRequests()
    stored.written("creation", "a", trace(1, "x"))

    assert read_back(stored, "a") == Cause(9, "Test", origin=1, request="x", caller="token:ada")
    assert read_back(stored, "a") == Cause(9, "Test")  # a later topic of the name


def test_event_names_the_client_of_another_interface() -> None:
    """Only the admin API has ids of requests."""
    stored = StoredRequests()
    stored.written("creation", "a", EventRecord(SystemClock(), Cause(1, "Test", caller="User:alice")))

    assert read_back(stored, "a") == Cause(9, "Test", origin=1, caller="User:alice")


def test_event_that_carries_out_several_requests_names_none() -> None:
    stored = StoredRequests()
    stored.written("creation", "a", trace(1, "x"))
    stored.written("creation", "b", trace(2, "y"))
    stored.written("creation", "c", trace(3, "z"))

    assert read_back(stored, "a", "b") == Cause(9, "Test")
    assert read_back(stored, "c", "of a tool") == Cause(9, "Test")


def test_other_changes_and_changes_without_a_request_are_not_mixed_up() -> None:
    stored = StoredRequests()
    stored.written("deletion", "a", trace(1, "x"))
    stored.written("creation", "b", trace(2))

    assert read_back(stored, "a") == Cause(9, "Test")
    assert read_back(stored, "b") == Cause(9, "Test")


def test_requests_that_are_never_read_back_are_forgotten() -> None:
    stored = StoredRequests()
    for number in range(1_001):
        stored.written("creation", str(number), trace(1, "x"))

    assert read_back(stored, "0") == Cause(9, "Test")
    assert read_back(stored, "1000") == Cause(9, "Test", origin=1, request="x", caller="token:ada")
