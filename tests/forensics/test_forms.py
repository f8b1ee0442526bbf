"""Forms of lines: each entry of the tables is read, alone and around others, and a refusal shows what is known."""

import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kactl.cli.root import kactl
from kactl.forensics.text import forms, json_lines
from kactl.forensics.text.forms import Forms
from kactl.forensics.text.json_lines import Elements, is_export
from kactl.forensics.text.pattern import UnknownPattern
from kactl.forensics.text.records import Cutter

from . import golden_forms
from .golden_forms import COLLECTORS, ISO, LINES, LOGGER, LOGGERS, MESSAGE, STANDARD, TS
from .reading import events_of


def _check(line: str, *, tz: str = "UTC") -> None:
    """Check that a line is read as the event of `golden_forms`, and that lines after it are not lost."""
    text = f"{line}\n{line}\n"

    first, second = (event for event in events_of(text, tz=tz) if event["lines"])

    assert (first["format"], first["level"], first["count"], first["speaker"]) == ("B2", "INFO", 12, 2)
    assert str(first["ts"]) == "2018-09-22 15:50:12.985000+00:00"
    assert second["offset"] == len(line.encode()) + 1


@pytest.mark.parametrize("name", LINES)
def test_every_form_is_read(name: str) -> None:
    line = LINES[name]

    _check(line)

    cut = Cutter(Forms()).cut(line.encode())
    assert cut.form is not None
    assert cut.form.name == name.partition(",")[0]


@pytest.mark.parametrize("name", [*LOGGERS, *COLLECTORS])
def test_every_document_in_json_is_read(name: str) -> None:
    _check((LOGGERS if name in LOGGERS else COLLECTORS)[name])


def test_every_entry_has_a_golden_line() -> None:
    assert {*forms.LAYOUTS, *forms.ENVELOPES} == {part for name in LINES for part in name.partition(",")[0].split("/")}


_DOCUMENT = {"message": "message", "level": "level", "logger": "logger", "time": "@timestamp"}
_VALUES = {"message": MESSAGE, "level": "INFO", "logger": LOGGER, "time": ISO, "thread": "main", "stream": "kafka-2"}


@pytest.mark.parametrize(
    ("what", "key"), [(what, key) for what, keys in json_lines.KEYS.items() for key in keys.split() if what != "trace"]
)
def test_every_key_is_read(what: str, key: str) -> None:
    keys = {**_DOCUMENT, what: key}

    _check(json.dumps({keys[each]: _VALUES[each] for each in keys}))


@pytest.mark.parametrize("key", json_lines.KEYS["trace"].split())
def test_stack_trace_is_found_by_every_key(key: str) -> None:
    document = {**{key: _VALUES[what] for what, key in _DOCUMENT.items()}, "level": "ERROR", key: TRACE}
    document["message"] = _FAILED

    (event,) = events_of(json.dumps(document) + "\n")

    assert event["error"] == "kafka.common.StateChangeFailedException"


@pytest.mark.parametrize("outer", [name for name in LINES if name.endswith("/standard")])
def test_every_prefix_goes_with_every_layout(outer: str) -> None:
    inner = [line for name, line in LINES.items() if "/" not in name and "," not in name and "logger:" not in line]

    rows = events_of("".join(LINES[outer].replace(STANDARD, line) + "\n" for line in inner))

    assert [(row["format"], row["count"], str(row["ts"])[:23]) for row in rows if row["lines"]] == [
        ("B2", 12, "2018-09-22 15:50:12.985")
    ] * len(inner)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize("name", [name for name in LINES if "zone" in name or "offset" in name])
def test_zone_in_a_line_goes_before_the_given_one(name: str, zone: str) -> None:
    _check(LINES[name], tz=zone)


# -- mixed streams -----------------------------------------------------------------------------------------------------


def test_layout_is_decided_for_each_line() -> None:
    """As after an upgrade, or with several containers in one stream."""
    text = "\n".join([*LINES.values(), *LOGGERS.values(), *COLLECTORS.values()] * 2)

    rows = events_of(text)

    assert [row["format"] for row in rows if row["lines"]] == ["B2"] * 2 * len({**LINES, **LOGGERS, **COLLECTORS})


@pytest.mark.parametrize(
    "line",
    [
        f"2018-09-22 15:50:12,985 <INFO> {MESSAGE}",
        f"15:50:12.985 [main] INFO {LOGGER} - {MESSAGE}",
        f'{{"when":"{ISO}","level":"INFO","words":"{MESSAGE}"}}',
    ],
    ids=["time", "time of day", "json"],
)
def test_line_in_an_unknown_form_is_no_part_of_the_message_before_it(line: str) -> None:
    first, second, third = (row for row in events_of(f"{STANDARD}\n{line}\n{STANDARD}\n") if row["lines"])

    assert (first["lines"], second["type"], second["lines"], third["lines"]) == (1, "unparsed", 1, 1)
    assert MESSAGE in second["text"]


def test_lines_of_other_programs_in_a_stream_are_no_gap() -> None:
    postgres = "db-1  | 2018-09-22 15:50:12.985 UTC [1] LOG:  database system is ready to accept connections\n"
    text = f"kafka-2  | {STANDARD}\n{postgres}kafka-2  | {STANDARD}\n"

    assert [row["type"] for row in events_of(text)] == ["received", "other", "received"]


FAILED = (
    "[2018-09-22 15:50:12,985] ERROR [Controller id=3 epoch=12] Controller 3 epoch 12 failed to change state for "
    "partition solo-0 from OfflinePartition to OnlinePartition (state.change.logger)"
)
_FAILED = FAILED.split("] ERROR ")[1].rsplit(" (", 1)[0]
TRACE = "kafka.common.StateChangeFailedException: Failed to elect leader"


def test_lines_without_a_time_are_joined_to_the_record_of_their_writer() -> None:
    text = f"kafka-3  | {FAILED}\nkafka-2  | {STANDARD}\nkafka-3  | {TRACE}\nkafka-3  | \tat x.Y(Z.scala:1)\n"

    failed, other = events_of(text)

    assert (failed["error"], failed["lines"], other["lines"]) == ("kafka.common.StateChangeFailedException", 3, 1)


@pytest.mark.parametrize("name", [name for name in LINES if name.endswith("/standard") and "{" not in LINES[name]])
def test_stack_trace_is_joined_with_every_prefix(name: str) -> None:
    text = "".join(LINES[name].replace(STANDARD, line) + "\n" for line in (FAILED, TRACE, "\tat x.Y(Z.scala:1)"))

    failed, second = events_of(text + LINES[name] + "\n")

    assert (failed["error"], failed["lines"]) == ("kafka.common.StateChangeFailedException", 3)
    assert (second["format"], second["lines"]) == ("B2", 1)


@pytest.mark.parametrize(
    "document",
    [
        {"level": "ERROR", "logger": LOGGER, "time": ISO, "message": _FAILED, "stack_trace": f"{TRACE}\n\tat x.Y"},
        {"message": f"{FAILED}\n{TRACE}\n\tat x.Y(Z.scala:1)"},
    ],
    ids=["logger", "collector"],
)  # fmt: skip
def test_stack_trace_in_a_document_is_joined_to_its_message(document: dict[str, str]) -> None:
    first, second = events_of(f"{json.dumps(document)}\n{STANDARD}\n")

    assert (first["error"], first["lines"], second["lines"]) == ("kafka.common.StateChangeFailedException", 1, 1)


def test_pieces_of_a_line_are_joined() -> None:
    begin, end = STANDARD[:40], STANDARD[40:]
    received = "2018-09-22T15:50:13.001234567Z stdout"
    text = f"{received} P {begin}\n{received} F {end}\n{received} F {STANDARD}\n"

    first, second = events_of(text)

    assert (first["format"], first["lines"], first["offset"]) == ("B2", 2, 0)
    assert (second["format"], second["lines"]) == ("B2", 1)


# -- exports -----------------------------------------------------------------------------------------------------------

_NEWER = STANDARD.replace("correlationId 77", "correlationId 78")
_DOCUMENTS = [
    {"message": STANDARD, "timestamp": golden_forms.EPOCH_MS, "tags": ["a", "b"], "more": {"x": [1, {"y": "}"}]}},
    {"message": _NEWER, "timestamp": golden_forms.EPOCH_MS + 1},
]
EXPORTS = {
    "array": _DOCUMENTS,
    "CloudWatch": {"events": _DOCUMENTS, "searchedLogStreams": []},
    "CloudWatch Insights": {
        "results": [[{"field": "@message", "value": each["message"]}] for each in _DOCUMENTS],
        "status": "Complete",
    },
    "Kibana, newest first": {
        "took": 5,
        "hits": {"total": {"value": 2}, "hits": [{"_source": each} for each in reversed(_DOCUMENTS)]},
    },
    "Loki, newest first": {
        "status": "success",
        "data": {
            "resultType": "streams",
            "result": [
                {
                    "stream": {"pod": "kafka-2"},
                    "values": [[f"{each['timestamp']}000000", each["message"]] for each in reversed(_DOCUMENTS)],
                }
            ],
        },
    },
    "Datadog": {"data": [{"attributes": each} for each in _DOCUMENTS]},
}


@pytest.mark.parametrize("chunk", [1 << 20, 7])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("name", EXPORTS)
def test_exports_are_read_in_the_order_of_time(
    name: str, indent: int | None, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_lines, "_STEP", chunk)
    text = json.dumps(EXPORTS[name], indent=indent).encode()

    rows = events_of(_unpacked(text))

    assert is_export(text)
    assert [(row["format"], row["correlation_id"]) for row in rows] == [("B2", 77), ("B2", 78)]


def _unpacked(text: bytes) -> bytes:
    elements = Elements(io.BytesIO(text))
    return b"".join(iter(lambda: elements.read(1), b""))


def test_documents_of_several_lines_are_read() -> None:
    text = "\n".join(json.dumps(each, indent=2) for each in _DOCUMENTS).encode()

    assert is_export(text)
    assert [row["correlation_id"] for row in events_of(_unpacked(text))] == [77, 78]


@pytest.mark.parametrize("line", [*LOGGERS.values(), *COLLECTORS.values()])
def test_a_document_on_each_line_is_no_export(line: str) -> None:
    assert not is_export(f"{line}\n{line}\n".encode())


# -- patterns ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("%d{dd.MM.yyyy HH:mm:ss,SSS} # %p # %c # %m%n", f"22.09.2018 15:50:12,985 # INFO # {LOGGER} # {MESSAGE}"),
        ("%d{DATE} %-5level %logger{36} :: %msg%n%ex", f"22 Sep 2018 15:50:12,985 INFO  {LOGGER} :: {MESSAGE}"),
        ("%d{UNIX_MILLIS};%p;%t;%c;%m", f"1537631412985;INFO;a b;{LOGGER};{MESSAGE}"),
        ("%highlight{[%d{yyyy-MM-dd HH:mm:ss.SSS}] <%p>} %m {%c}%n", f"[{TS}] <INFO> {MESSAGE} {{{LOGGER}}}"),
        ("%clr(%d{yyyyMMdd'T'HHmmss.SSSX}){faint} %p/%c/%X{id}/ %m", f"20180922T155012.985Z INFO/{LOGGER}// {MESSAGE}"),
        ("%p|%d{ISO8601}|%c|%L|%m", f"INFO|2018-09-22T15:50:12,985|{LOGGER}|66|{MESSAGE}"),
    ],
)  # fmt: skip
def test_pattern_of_the_user_is_read(pattern: str, line: str) -> None:
    forms_known = Forms((pattern,))

    cut = Cutter(forms_known).cut(f"kafka-2 | {line}".encode())

    assert cut.fields is not None
    ts, level, _, message, logger, _, stream = cut.fields
    assert ts is not None
    assert (ts[:19].replace(b"T", b" "), ts[20:23], level) == (b"2018-09-22 15:50:12", b"985", b"INFO")
    assert (message, logger, stream) == (MESSAGE.split("] ")[1].encode(), LOGGER.encode(), b"kafka-2")


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("%d %p %q %m", "the conversion %q at character 7 is not known"),
        ("%p %c - %m", "has no %d"),
        ("%d %p %c", "has no %m"),
        ("%d{HH:mm:ss} %m", "prints times without a day"),
        ("%d{QQ dd} %m", "QQ in the date 'QQ dd' is not known"),
    ],
)
def test_unreadable_pattern_is_rejected_with_the_reason(pattern: str, reason: str) -> None:
    with pytest.raises(UnknownPattern, match="--layout") as raised:
        Forms((pattern,))

    assert reason in str(raised.value)


def test_known_layouts_are_explained(tmp_path: Path) -> None:
    (tmp_path / "some.log").write_text(f"{LINES['container/standard']}\n{LOGGERS['ECS']}\n")

    done = CliRunner().invoke(kactl, ["forensics", "explain-layout", str(tmp_path / "some.log"), "-o", "json"])

    rows = json.loads(done.stdout)
    assert [(row["form"], row["time"], row["logger"]) for row in rows] == [
        ("container/standard", TS, LOGGER),
        ("bare-thread", ISO.removesuffix("Z"), LOGGER),
    ]


def test_unknown_layout_is_refused_with_the_known_ones_until_it_is_named(tmp_path: Path) -> None:
    log, out = str(tmp_path / "some.log"), str(tmp_path / "out")
    (tmp_path / "some.log").write_text(f"{TS} <INFO> {MESSAGE} #{LOGGER}\n" * 2)
    pattern = "%d <%p> %m #%c%n"

    explained = CliRunner().invoke(kactl, ["forensics", "explain-layout", log])
    refused = CliRunner().invoke(kactl, ["forensics", "ingest", log, "--out", out])
    named = CliRunner().invoke(kactl, ["forensics", "ingest", log, "--out", out, "--layout", pattern, "-o", "json"])
    wrong = CliRunner().invoke(kactl, ["forensics", "ingest", log, "--out", out, "--layout", "%d %q %m"])

    assert (explained.exit_code, refused.exit_code, named.exit_code, wrong.exit_code) == (1, 1, 0, 2)
    assert "--layout PATTERN" in explained.stderr
    assert "[%d] [%-5p] [%t] [%c] - %m" in explained.stderr
    assert "explain-layout" in refused.stderr
    assert f"the first of them: {TS} <INFO>" in refused.stderr
    assert '"lines":2' in named.stdout.replace(" ", "")
    assert "the conversion %q at character 4" in wrong.stderr


# -- a history in each form --------------------------------------------------------------------------------------------

# Minute, second, millisecond, level, logger, message, following line.
_CONTROLLER = "[Controller id=7 epoch=3]"
_HISTORY = (
    ("50:12", "985", "INFO", "kafka.controller.KafkaController", "[Controller id=7] Newly added brokers: , "
     "deleted brokers: 4, bounced brokers: , all live brokers: 5,7", ""),
    ("50:12", "995", "TRACE", LOGGER, f"{_CONTROLLER} Changed partition till-2 state from OnlinePartition to "
     "OfflinePartition", ""),
    ("50:13", "001", "INFO", LOGGER, f"{_CONTROLLER} Changed partition till-1 from OfflinePartition to "
     "OnlinePartition with state LeaderAndIsr(leader=5, leaderEpoch=9, isr=List(5), leaderRecoveryState=RECOVERED, "
     "partitionEpoch=14)", ""),
    ("50:13", "010", "ERROR", LOGGER, _FAILED.replace("solo-0", "till-2"), TRACE),
    ("55:00", "300", "INFO", LOGGER, "[Broker id=4] Leader till-2 with topic id Some(Hs7dLq9eTtK5uJ1cVb6xMA) starts "
     "at leader epoch 10 from offset 777 with partition epoch 1, high watermark 777, ISR [4], adding replicas [] and "
     "removing replicas [] . Previous leader None and previous leader epoch was -1.", ""),
)  # fmt: skip
# Forms whose lines cannot be made by replacing texts; the last of these: in context lines of grep, no one knows where a
# name ends.
_OTHERS = ("short-unix", "milliseconds", "JsonLayout", "GELF", "JsonTemplateLayout", "bytes", "context")


def _history(line: str) -> str:
    """Return the history with lines of a form, of which one is given."""
    text = ""
    for seconds, millis, level, logger, message, trace in _HISTORY:
        rendered = line.replace(MESSAGE, message).replace(LOGGER, logger).replace("INFO", level)
        for mark in (",", "."):
            rendered = rendered.replace(f"50:12{mark}985", f"{seconds}{mark}{millis}")
        if trace and "{" in line and STANDARD not in line:
            rendered = f'{rendered[:-1]},"stack_trace":"{trace}"}}'
        text += f"{rendered}\n"
        if trace and (STANDARD in line or "{" not in line):
            text += (line.replace(STANDARD, trace) if STANDARD in line else trace) + "\n"
    return text


def _told(text: str) -> list[tuple[object, ...]]:
    columns = (
        "format",
        "ts",
        "level",
        "topic",
        "partition",
        "leader",
        "leader_epoch",
        "brokers_removed",
        "error",
        "speaker",
    )
    return [tuple(row[name] for name in columns) for row in events_of(text) if row["lines"]]


@pytest.mark.parametrize(
    "name", [name for name in [*LINES, *LOGGERS, *COLLECTORS] if not any(each in name for each in _OTHERS)]
)
def test_history_in_each_form_is_that_of_the_stock_layout(name: str) -> None:
    line = {**LINES, **LOGGERS, **COLLECTORS}[name]
    expected = _told(_history(STANDARD))

    found = _told(_history(line))

    if "logger:" in line:  # a layout with short names cannot tell which logger it was
        expected, found = ([row[:3] for row in rows] for rows in (expected, found))
    assert found == expected
