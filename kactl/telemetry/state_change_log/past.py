"""Earlier runs, read back from the state-change log.

A server that starts reads the newest lines of its own log, so that its history of controllers and its events continue
where the last run ended. Both are bounded by count and by bytes, from the newest line backwards: the time that a start
takes does not depend on the length of the log.

Lines that cannot be read, such as one that a crash cut off, are skipped. Where events are missing between two lines, a
`Reset` takes their place. Only the JSON form can be read back; lines in Kafka's form lack most of an event.
"""

import contextlib
import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from kactl.decide.messages.log import AnyEvent, ControllerEvent, ElectionEvent, Reset, decode
from kactl.telemetry.event_records import RECORDS_MAX
from kactl.telemetry.terms import ENDED_UNSEEN, TERMS_MAX, Term

from .segments import paths

# A fifth of what the history holds, so that it has room for this run; read in a quarter of a second.
EVENTS_MAX: Final = 20_000
# EVENTS_MAX lines of 400 bytes, which few lines reach.
EVENT_BYTES_MAX: Final = 8 << 20
# Elections are rare among other lines. They are searched for by their first bytes, at some gigabytes a second.
TERM_BYTES_MAX: Final = 64 << 20

CONTROLLER: Final = b'{"kind":"controller",'
_ELECTION: Final = b'{"kind":"election",'
_Event = TypeVar("_Event", ControllerEvent, ElectionEvent)


class Past(NamedTuple):
    """What earlier runs left.

    Attributes:
        events: the newest ones; numbers ascend.
        terms: the newest ones, oldest first. The last has no end if the log has none.
        orderly: whether the last run logged everything up to its end.
        skipped: how many lines could not be read, or were out of order.
        elections: the newest ones, oldest first.
    """

    events: list[AnyEvent]
    terms: list[Term]
    orderly: bool
    skipped: int
    elections: tuple[ElectionEvent, ...] = ()


def read_back(
    folder: Path,
    *,
    events_max: int = EVENTS_MAX,
    event_bytes_max: int = EVENT_BYTES_MAX,
    term_bytes_max: int = TERM_BYTES_MAX,
) -> Past:
    """Read the log of a folder, which no process writes meanwhile. Called in a thread.

    Raises:
        OSError: the log is there and cannot be read.
    """
    newest: list[AnyEvent] = []
    skipped = 0
    for line in _lines_backwards(folder, event_bytes_max):
        if len(newest) >= events_max:
            break
        event = _event(line)
        if event is None or (newest and event.seq >= newest[-1].seq):
            skipped += 1
        else:
            newest.append(event)
    newest.reverse()
    orderly = not newest or _ends_in_order(newest)
    terms = _terms(folder, term_bytes_max)
    elections = tuple(newest_of(folder, ElectionEvent, _ELECTION, term_bytes_max, RECORDS_MAX))
    return Past(_with_resets(newest), terms, orderly, skipped, elections)


def _event(line: bytes) -> AnyEvent | None:
    try:
        return decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _ends_in_order(events: Sequence[AnyEvent]) -> bool:
    """Returns whether events end with a resignation. An election may be recorded after it: its requests are dropped."""
    last = next((event for event in reversed(events) if not isinstance(event, ElectionEvent)), None)
    return isinstance(last, ControllerEvent) and last.what == "resigned"


def _with_resets(events: list[AnyEvent]) -> list[AnyEvent]:
    """Events with a Reset wherever numbers are missing, unless a run ended there in order."""
    with_resets: list[AnyEvent] = []
    for event in events:
        before = with_resets[-1] if with_resets else None
        has_gap = before is not None and event.seq > before.seq + 1 and not isinstance(event, Reset)
        if has_gap and not isinstance(before, Reset) and not _ends_in_order(with_resets):
            with_resets.append(Reset(seq=event.seq - 1, time_ms=event.time_ms))
        with_resets.append(event)
    return with_resets


# -- controllers -------------------------------------------------------------------------------------------------------


def _terms(folder: Path, bytes_max: int) -> list[Term]:
    """The controllerships of this instance.

    Each begins and ends with the times that it had while the instance was running, since those are in the log.
    """
    events = newest_of(folder, ControllerEvent, CONTROLLER, bytes_max, 2 * TERMS_MAX)
    terms: list[Term] = []
    for event in events:
        began_ms = event.time_ms if event.began_ms is None else event.began_ms
        ends = event.what != "elected"
        if terms and terms[-1].ended_ms is None:
            if ends and terms[-1].epoch == event.controller_epoch:
                terms[-1] = _ended(terms[-1], event.time_ms, event.cause)
                continue
            terms[-1] = _ended(terms[-1], began_ms, ENDED_UNSEEN)
        # An end without an election: the takeover has failed, or the line of the election is lost.
        if not ends or event.began_ms is not None:
            term = Term(event.controller_epoch, event.controller_id, began_ms, ours=True)
            terms.append(_ended(term, event.time_ms, event.cause) if ends else term)
    return terms[-TERMS_MAX:]


def _ended(term: Term, at_ms: int, cause: str) -> Term:
    return msgspec.structs.replace(term, ended_ms=at_ms, cause=cause)


def newest_of(folder: Path, wanted: type[_Event], prefix: bytes, bytes_max: int, count_max: int) -> list[_Event]:
    """Returns the newest events of one type, oldest first; they are rare. Their lines begin with `prefix`."""
    events: list[_Event] = []
    for path in paths(folder):
        with mapped(path) as data:
            end, begin = len(data), max(0, len(data) - bytes_max)
            bytes_max -= end - begin
            while len(events) < count_max and (start := data.rfind(prefix, begin, end)) >= 0:
                end = start
                stop = data.find(b"\n", start)
                event = _event(data[start : stop if stop >= 0 else len(data)])
                if isinstance(event, wanted):
                    events.append(event)
        if bytes_max <= 0 or len(events) >= count_max:
            break
    events.reverse()
    return events


# -- files -------------------------------------------------------------------------------------------------------------


def _lines_backwards(folder: Path, bytes_max: int) -> Iterator[bytes]:
    """Whole lines, the newest first, of the last `bytes_max` bytes of all files."""
    for path in paths(folder):
        with mapped(path) as data:
            end, begin = len(data), max(0, len(data) - bytes_max)
            bytes_max -= end - begin
            while end > begin:
                newline = data.rfind(b"\n", begin, end - 1 if data[end - 1] == 0x0A else end)
                if newline < 0 and begin:
                    return  # the line begins before the limit
                if line := data[newline + 1 if newline >= 0 else 0 : end].rstrip(b"\n"):
                    yield line
                end = newline + 1
        if bytes_max <= 0:
            return


@contextlib.contextmanager
def mapped(path: Path) -> Iterator[mmap.mmap | bytes]:
    """The bytes of a file; of one that is gone or empty, none."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        yield b""
        return
    with file:
        if not file.seek(0, 2):
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data
