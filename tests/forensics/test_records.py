"""Records of files that are split, compressed, truncated or encoded differently: each line once, or an error."""

import gzip
import io
import itertools
import json
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.forensics.event_types import Kind
from kactl.forensics.text import source, splits
from kactl.forensics.text.forms import Forms
from kactl.forensics.text.probe import Probe, probe
from kactl.forensics.text.records import records
from kactl.forensics.text.source import CUT, Broken, Transcoded, Unpacked, lines
from kactl.forensics.text.zone import zone_of

from .golden import GOLDEN
from .reading import events_of, log_line

STORY = "".join(
    log_line(golden, ts=f"2024-05-01 10:00:{at:02},000")
    for at, golden in enumerate(each for each in GOLDEN if each.format in ("P1", "P4b", "B4", "I1"))
)
# The logger is on the last line of these messages.
LONG = (
    "[2024-05-01 10:00:20,000] INFO Stat of the created znode at /brokers/ids/7 is: 35,35,1714550400123\n"
    " (kafka.zk.KafkaZkClient)\n"
    "[2024-05-01 10:00:21,000] INFO KafkaConfig values: \n\tadvertised.listeners = null\n\tbroker.id = 7\n"
    " (kafka.server.KafkaConfig)\n"
    "[2024-05-01 10:00:22,000] ERROR [Controller id=7] Two\nlines (kafka.controller.KafkaController)\n"
    "java.io.IOException: gone\n\tat a.line.of(AStackTrace.scala:1)\n"
)
LOST = "\tat a.line.of(AStackTrace.scala:1)\n\tat another(AStackTrace.scala:2)\n"


def test_lines_without_a_time_are_joined_to_the_previous_one() -> None:
    failed = next(each for each in events_of(STORY) if each["format"] == "P4b")

    assert failed["lines"] == 4
    assert failed["reason"].startswith("Failed to elect leader for partition a-b-0-3 under strategy")
    assert sum(each["lines"] for each in events_of(STORY)) == STORY.count("\n")


@pytest.mark.parametrize("text", [STORY, LOST + STORY, STORY + LOST, STORY.rstrip("\n"), LONG + STORY], ids=range(5))
def test_two_splits_at_any_byte_equal_the_whole_file(text: str) -> None:
    whole = records_of(text)

    for cut in range(1, len(text) + 1):
        assert records_of(text, end=cut) + records_of(text, start=cut) == whole


@given(st.lists(st.integers(1, len(STORY) + 20), max_size=6).map(sorted))
def test_any_number_of_splits_equal_the_whole_file(cuts: list[int]) -> None:
    bounds = [0, *dict.fromkeys(cuts), None]

    told = [
        record
        for start, end in itertools.pairwise(bounds)
        for record in records_of(LOST + STORY, start=start or 0, end=end)
    ]

    assert told == records_of(LOST + STORY)


def test_records_and_lines_become_the_same_events() -> None:
    middle = STORY.index("\n") + 1

    assert events_of(STORY, end=middle) + events_of(STORY, start=middle) == events_of(STORY)


@pytest.mark.parametrize("chunk", [1, 2, 7, 100, 1000])
def test_events_do_not_depend_on_the_read_size(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    whole, in_lines = events_of(LOST + STORY), records_of(LONG)

    monkeypatch.setattr(source, "CHUNK", chunk)

    assert events_of(LOST + STORY) == whole
    assert records_of(LONG) == in_lines


def test_message_of_several_lines_is_a_record_of_its_own() -> None:
    found = records_of(LONG)

    assert [(fields[3:5], lines, joined) for _, fields, lines, joined in found] == [
        ((b"Stat of the created znode at /brokers/ids/7 is: 35,35,1714550400123", b"kafka.zk.KafkaZkClient"), 2, None),
        (
            (b"KafkaConfig values: \n\tadvertised.listeners = null\n\tbroker.id = 7", b"kafka.server.KafkaConfig"),
            4,
            None,
        ),
        ((b"Two\nlines", b"kafka.controller.KafkaController"), 4, b"java.io.IOException: gone"),
    ]


@pytest.mark.parametrize(
    ("layout", "prefix", "suffix"),
    [
        ("standard", "", ""),
        ("container/standard", "kafka-7  | ", ""),
        ("bare", "", " [main]"),
        ("cri/bare", "x stdout F ", ""),
    ],
)
def test_message_of_several_lines_is_no_reason_of_another(layout: str, prefix: str, suffix: str) -> None:
    begun = "[2024-05-01 10:00:19,000] ERROR [Broker id=7] {} (state.change.logger)\n".format(
        "Received LeaderAndIsrRequest with correlation id 3 from controller 1 epoch 2 with an older epoch"
    )
    text = begun + LONG
    if "bare" in layout:
        text = text.replace("[2024", "2024").replace("00] ", "00 ").replace(")\n", f"){suffix}\n")
    text = "".join(f"{prefix}{line}\n" for line in text.splitlines())

    first, *_, last = events_of(text, layout=layout, kind=Kind.SERVER)

    assert (first["lines"], first["reason"], last["text"], last["lines"]) == (1, None, "[Controller id=7] Two", 4)


def test_line_without_its_end_is_unparsed() -> None:
    """Its last number may be cut off."""
    whole = "[2024-05-01 10:00:00,000] INFO [QuorumController id=7] In the new epoch 34, the leader is 12"

    (event,) = events_of(f"{whole} (org.apache.kafka.controller.QuorumController)\n")
    (cut,) = events_of(whole[:-1])

    assert (event["controller"], cut["type"], cut["controller"]) == (12, "unparsed", None)
    assert cut["text"].endswith("the leader is 1")


def test_byte_order_mark_is_removed() -> None:
    marked, plain = events_of("\ufeff" + STORY), events_of(STORY)

    assert [event["format"] for event in marked] == [event["format"] for event in plain]
    assert marked[0] == plain[0]


def test_leading_lines_that_no_logger_wrote_are_no_gap() -> None:
    shell = "===> User\nuid=1000(appuser) gid=1000(appuser)\nCLUSTER_ID not set.\n"

    first, *rest = events_of(shell + STORY)

    assert (first["type"], first["lines"], first["ts"]) == ("other", 3, None)
    assert [event["type"] for event in rest] == [event["type"] for event in events_of(STORY)]


def test_leading_continuation_lines_are_unparsed() -> None:
    first, *rest = events_of(LOST + STORY)

    assert (first["type"], first["lines"], first["ts"]) == ("unparsed", 2, None)
    assert first["text"] == LOST.split("\n")[0]
    assert [event["type"] for event in rest] == [event["type"] for event in events_of(STORY)]


def test_long_line_is_truncated_and_the_next_is_complete() -> None:
    long = f"[2024-05-01 10:00:00,000] INFO [Controller id=1] New partition creation callback for {'t-0,' * 3_000_000}"
    text = f"{long} (kafka.controller.KafkaController)\n{STORY}"

    first, *rest = events_of(text)

    assert first["format"] == "C8b"
    assert len(first["text"]) == 4096
    assert [event["format"] for event in rest] == [event["format"] for event in events_of(STORY)]
    assert rest[0]["offset"] == text.index(STORY)


def test_truncated_line_has_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "CHUNK", 10)
    monkeypatch.setattr(source, "LINE_LIMIT", 30)

    found = list(lines(io.BytesIO(b"a" * 1000 + b"\nb\n"), start=0, discard_first=False))

    assert found[0][1][0].endswith(CUT)
    assert len(found[0][1][0]) <= 30 + 10 + len(CUT)
    assert found[-1] == (1001, [b"b"])


# -- packed ------------------------------------------------------------------------------------------------------------


def test_gzip_of_several_members_is_read_as_one() -> None:
    packed = gzip.compress(b"one\ntwo") + gzip.compress(b"\nthree\n") + bytes(100)

    assert _all_lines(Unpacked(io.BytesIO(packed))) == ([b"one", b"two", b"three"], None)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_truncated_gzip_is_read_up_to_its_end(share: float) -> None:
    text = "".join(f"{zlib.crc32(b'%d' % number)}\n" for number in range(200_000)).encode()
    packed = gzip.compress(text)

    found, broken = _all_lines(Unpacked(io.BytesIO(packed[: int(len(packed) * share)])))

    assert broken is not None
    assert "ends in the middle" in broken
    assert 0.8 * share < len(found) / 200_000 < 1.2 * share
    assert found[:-1] == text.split(b"\n")[: len(found) - 1]


def test_corrupt_gzip_is_read_up_to_the_error() -> None:
    text = "".join(f"{zlib.crc32(b'%d' % number)}\n" for number in range(200_000)).encode()
    packed = bytearray(gzip.compress(text))
    packed[len(packed) // 2 : len(packed) // 2 + 50] = b"\xff" * 50

    found, broken = _all_lines(Unpacked(io.BytesIO(bytes(packed))))

    assert broken is not None
    assert "cannot be unpacked further" in broken
    assert len(found) > 10_000


# -- encodings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_read(encoding: str) -> None:
    mark = {"utf-16": b"", "utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}[encoding]

    found, broken = _all_lines(Transcoded(io.BytesIO(mark + "grün\nzwei\n".encode(encoding) + b"\x00")))

    assert broken is None
    assert found[:2] == ["grün".encode(), b"zwei"]


@pytest.mark.parametrize(("encoding", "expected"), [("utf-8", "Müller"), ("latin-1", "Müller")])
def test_text_in_either_encoding_is_kept(encoding: str, expected: str) -> None:
    text = "[2024-05-01 10:00:00,000] WARN [Controller id=1] Nobody knows Müller (kafka.controller.KafkaController)\n"

    (event,) = events_of(text.encode(encoding))

    assert event["text"] == f"[Controller id=1] Nobody knows {expected}"


def test_zero_bytes_after_a_crash_are_skipped() -> None:
    first, second = STORY.encode().split(b"\n")[:2]

    events = events_of(first + b"\n" + bytes(500) + second + b"\n")

    assert [event["format"] for event in events] == ["P1", "P4b"]
    assert events[1]["lines"] == 1


def test_lines_with_carriage_returns_are_read() -> None:
    assert [event["format"] for event in events_of(STORY.replace("\n", "\r\n"))] == [
        event["format"] for event in events_of(STORY)
    ]


def test_prefix_is_removed_at_the_beginning_of_a_line_only() -> None:
    first = STORY.split("\n")[0]
    text = f"kafka-1 | {first}\nreason: web | is gone\n"

    (some,) = records(io.BytesIO(text.encode()), Forms(expected=("container/standard",)), start=0, end=None)

    assert some.joined == {0: b"reason: web | is gone"}


# -- Docker's JSON -----------------------------------------------------------------------------------------------------


def _kept(printed: str, stream: str = "stdout") -> str:
    """Returns a line of a container as Docker keeps it; its encoder escapes the characters of HTML, too."""
    text = json.dumps(printed, ensure_ascii=False)
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return f'{{"log":{text},"stream":"{stream}","time":"2024-05-01T10:00:00.123456789Z"}}\n'


def test_file_of_docker_is_read_like_the_log_in_it(tmp_path: Path) -> None:
    long = STORY.splitlines(keepends=True)
    long[1] = long[1].replace("Changed", "x" * 40_000 + "Changed", 1)
    pieces = [line[start : start + 16_384] for line in long for start in range(0, len(line), 16_384)]
    plain, kept = tmp_path / "plain.log", tmp_path / "kept-json.log"
    plain.write_text("".join(long))
    kept.write_text("".join(map(_kept, pieces)))

    probed = probe(str(kept))
    assert probed == msgspec.structs.replace(probe(str(plain)), path=str(kept), size=kept.stat().st_size)
    read, expected = (_read(each).drop_columns(["offset", "lines"]) for each in (probed, probe(str(plain))))
    assert read.equals(expected)


def _read(probed: Probe) -> pa.Table:
    """Returns the events of a file, which is cut after each hundred bytes if it can be cut."""
    parts = splits.cut([(0, probed)], split_bytes=100)
    return pa.Table.from_batches([batch for part in parts for batch in splits.events(part, zone_of("UTC"))])


def _all_lines(file: source.Readable) -> tuple[list[bytes], str | None]:
    """Returns all lines, and the error if there is one."""
    found: list[bytes] = []
    try:
        for _, some in lines(file, start=0, discard_first=False):
            found += some
    except Broken as error:
        return found, str(error)
    return found, None


def records_of(text: str, *, start: int = 0, end: int | None = None) -> list[tuple[Any, ...]]:
    """Returns the records of a text, or of one split: offset, fields, lines, and joined lines."""
    file = io.BytesIO(text.encode())
    file.seek(max(0, start - 1))
    return [
        (offset, fields, length, some.joined.get(index))
        for some in records(file, Forms(expected=("standard",)), start=start, end=end)
        for index, (offset, fields, length) in enumerate(zip(some.offsets, some.fields, some.lengths, strict=True))
    ]
