"""Conversion of logged times to UTC."""

import datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.forensics.text import source, splits, zone
from kactl.forensics.text.probe import probe

from .reading import events_of

UTC = datetime.UTC


def micros(text: str) -> int:
    moment = datetime.datetime.fromisoformat(text)
    return (moment - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)


LAST = datetime.datetime(2199, 12, 31, 23, 59, 59, 999_999)


@given(st.lists(st.datetimes(datetime.datetime(1970, 1, 1), LAST), min_size=1))
def test_times_are_read_to_the_millisecond(moments: list[datetime.datetime]) -> None:
    texts = [f"{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03}" for moment in moments]

    read, is_time = zone.logged([text.encode() for text in texts])

    assert read.tolist() == [micros(text.replace(",", ".")) for text in texts]
    assert is_time.all()


def test_years_of_the_buddhist_calendar_are_converted(tmp_path: Path) -> None:
    log = tmp_path / "state-change.log"
    line = (
        "[{}] INFO [Broker id=2] Handling StopReplica request correlationId 7 from controller 1 for 3 partitions "
        "(state.change.logger)\n"
    )
    log.write_text(line.format("2567-02-29 23:59:59,123") + line.format("2567-03-01 00:00:00,004"))

    probed = probe(str(log))
    rows = [row for part in splits.cut([(0, probed)]) for some in splits.events(part, UTC) for row in some.to_pylist()]

    assert probed.years_ahead == 543
    assert [(row["type"], str(row["ts_logged"])) for row in rows] == [
        ("received", "2024-02-29 23:59:59.123000"),
        ("received", "2024-03-01 00:00:00.004000"),
    ]


@pytest.mark.parametrize("year", [b"2542", b"2644", b"2024", b"9999"])
def test_one_year_of_another_calendar_keeps_all_years(year: bytes) -> None:
    assert zone.years_ahead([b"2567-02-29 23:59:59,123", year + b"-03-01 00:00:00,004"]) == 0


@pytest.mark.parametrize(
    "text",
    ["2024-13-01 10:00:00", "2024-00-10 10:00:00", "2024-02-30 10:00:00", "2023-02-29 10:00:00", "2024-05-00 10:00:00",
     "2024-05-01 24:00:00", "2024-05-01 10:60:00", "2024-05-01 10:00:61", "0000-01-01 00:00:00", "1969-12-31 23:59:59",
     "2200-01-01 00:00:00", "9999-99-99 99:99:99"],
)  # fmt: skip
def test_invalid_time_is_replaced_by_the_previous_one(text: str) -> None:
    texts = ["2024-05-01 10:00:00,000", f"{text},000", "2024-05-01 10:00:01,000"]

    read, is_time = zone.logged([value.encode() for value in texts])

    assert is_time.tolist() == [True, False, True]
    assert read.tolist() == [micros(texts[0].replace(",", "."))] * 2 + [micros(texts[2].replace(",", "."))]


def test_line_with_an_invalid_time_is_unparsed() -> None:
    message = "[Broker id=2] Handling StopReplica request correlationId 7 from controller 1 for 3 partitions"
    good = f"[2024-05-01 10:00:00,123] INFO {message} (state.change.logger)"
    text = f"{good}\n"

    first, second = events_of(text + text.replace("05-01", "05-77"))

    assert (first["type"], second["type"], second["ts"], second["ts_logged"]) == ("received", "unparsed", None, None)
    assert second["text"].startswith("[Broker id=2] Handling StopReplica")


@given(
    st.datetimes(datetime.datetime(1990, 1, 1), datetime.datetime(2037, 1, 1)),
    st.sampled_from(
        ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "UTC", "+02:00", "-05:30"]
    ),
)
def test_times_are_converted_to_utc(moment: datetime.datetime, name: str) -> None:
    where = zone.zone_of(name)
    expected = moment.replace(tzinfo=where).astimezone(UTC).replace(tzinfo=None)

    (utc,) = zone.Fold(where).to_utc(np.array([micros(moment.isoformat())])).tolist()

    assert utc == micros(expected.isoformat())


def test_repeated_hour_is_resolved_when_the_clock_goes_back() -> None:
    texts = ["01:59:00", "02:10:00", "02:55:00", "02:05:00", "02:50:00", "03:10:00"]
    local = np.array([micros(f"2024-10-27 {text}") for text in texts])

    told = zone.Fold(zone.zone_of("Europe/Berlin")).to_utc(local)

    assert [str(np.datetime64(int(at), "us"))[11:16] for at in told] == [
        "23:59", "00:10", "00:55", "01:05", "01:50", "02:10"]  # fmt: skip
    assert (np.diff(told) > 0).all()


@pytest.mark.parametrize("chunk", [source.CHUNK, 90, 40])
@pytest.mark.parametrize("split", [None, 100])
def test_repeated_hour_is_resolved_across_reads_and_splits(
    chunk: int, split: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "CHUNK", chunk)
    times = ["01:50", "02:50", "02:10", "02:20", "02:59", "03:01"]
    line = "[2024-10-27 {}:00,000] INFO [Controller id=1] Resigned (kafka.controller.KafkaController)\n"
    (tmp_path / "controller.log").write_text("".join(map(line.format, times)))
    berlin = zone.zone_of("Europe/Berlin")

    parts = list(splits.cut([(0, probe(str(tmp_path / "controller.log")))], split or splits.SPLIT_BYTES, berlin))
    rows = [row for part in parts for some in splits.events(part, berlin) for row in some.to_pylist()]

    told = sorted((row["offset"], f"{row['ts']:%H:%M}") for row in rows if row["lines"])
    assert [time for _, time in told] == ["23:50", "00:50", "01:10", "01:20", "01:59", "02:01"]
    assert len(parts) == 1


def test_file_without_a_repeated_hour_is_split(tmp_path: Path) -> None:
    line = "[2024-07-27 0{}:00:00,000] INFO [Controller id=1] Resigned (kafka.controller.KafkaController)\n"
    (tmp_path / "controller.log").write_text("".join(map(line.format, range(4))))

    parts = splits.cut([(0, probe(str(tmp_path / "controller.log")))], 100, zone.zone_of("Europe/Berlin"))

    assert len(list(parts)) == 4


@pytest.mark.parametrize(
    ("logged", "utc"),
    [
        ("2024-03-05T08:00:00.100Z", "08:00:00.100000"),
        ("2024-03-05 08:00:00,100+0200", "06:00:00.100000"),
        ("2024-03-05 08:00:00.100 -05:30", "13:30:00.100000"),
        ("2024-03-05 08:00:00 CEST", "06:00:00"),
        ("2024-03-05 08:00:00,1", "07:00:00.100000"),
        ("2024-03-05 08:00:00.123456789", "07:00:00.123000"),
        ("24/03/05 08:00:00", "07:00:00"),
        ("2024/03/05 08:00:00.5", "07:00:00.500000"),
    ],
)
def test_zone_of_a_line_goes_before_that_of_the_file(logged: str, utc: str) -> None:
    line = f"[{logged}] INFO [Controller id=1] Resigned (kafka.controller.KafkaController)\n"

    first, second = events_of(line * 2, tz="Europe/Berlin")

    assert str(first["ts"]).partition("+")[0] == f"2024-03-05 {utc}"
    assert first["ts"] == second["ts"]


def test_period_with_a_clock_change_is_ambiguous() -> None:
    berlin = zone.zone_of("Europe/Berlin")

    assert zone.is_ambiguous(micros("2024-10-26 20:00"), micros("2024-10-27 03:00"), berlin)
    assert not zone.is_ambiguous(micros("2024-10-27 03:00"), micros("2024-10-28 03:00"), berlin)
    assert not zone.is_ambiguous(micros("2024-03-31 00:00"), micros("2024-03-31 03:00"), berlin)


@pytest.mark.parametrize("name", ["Europe/Berln", "", "+25:00x", "../../etc/passwd"])
def test_unknown_zone_is_rejected(name: str) -> None:
    with pytest.raises(zone.UnknownZone, match=r"--tz: there is no time zone .*: write one as Europe/Berlin"):
        zone.zone_of(name)


def test_event_has_its_logged_and_utc_time() -> None:
    (event,) = events_of(
        "[2024-07-01 00:30:00,250] INFO [Controller id=1] Resigned (kafka.controller.X)\n", tz="Europe/Berlin"
    )

    assert str(event["ts_logged"]) == "2024-07-01 00:30:00.250000"
    assert event["ts"] == datetime.datetime(2024, 6, 30, 22, 30, 0, 250_000, tzinfo=UTC)
    assert str(event["day"]) == "2024-06-30"


@pytest.mark.parametrize("chunk", [source.CHUNK, 90, 40])
def test_backward_clock_is_an_event(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any position in the file, including the end of a read."""
    monkeypatch.setattr(source, "CHUNK", chunk)
    times = ["10:00:00,000", "10:00:05,000", "10:00:04,500", "09:59:00,000", "09:59:01,000"]
    text = "".join(f"[2024-05-01 {time}] INFO [Controller id=1] Resigned (kafka.controller.X)\n" for time in times)

    back = [event for event in events_of(text) if event["type"] == "clock-back"]

    assert [(event["took_ms"], event["lines"]) for event in back] == [(64_500, 0)]
