"""Pictures: valid XML, bars at their times, texts without overlaps."""

import datetime
import itertools
import re
from xml.etree import ElementTree

import pytest

from kactl.forensics.report.findings import Absence, Controllership
from kactl.forensics.report.model import Band, Incident
from kactl.forensics.report.pictures import LEFT, RIGHT, parts, timeline
from kactl.forensics.report.svg import TimeScale, fitted, width
from kactl.forensics.wording import Moments
from tests.forensics.jobs.tables import moment

from .builders import absence, bar, controllership, incident, partition

UTC = Moments("UTC")
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
# A hundred seconds with a margin of four on each side.
WIDE = (RIGHT - LEFT) / 108


def drawn(
    given: Incident,
    *,
    absences: tuple[Absence, ...] = (),
    controllers: tuple[Controllership, ...] = (),
    moments: Moments = UTC,
) -> ElementTree.Element:
    return ElementTree.fromstring(timeline(given, absences=absences, controllers=controllers, moments=moments))


def tipped(picture: ElementTree.Element, begin: str) -> list[ElementTree.Element]:
    """Returns the shapes with a tip that begins with a text."""
    return [
        each
        for each in picture.iter()
        if any((title.text or "").startswith(begin) for title in each if _is(title, "title"))
    ]


def _is(element: ElementTree.Element, name: str) -> bool:
    return element.tag.rpartition("}")[2] == name


def span(element: ElementTree.Element) -> tuple[float, float]:
    return float(element.get("x", "nan")), float(element.get("x", "nan")) + float(element.get("width", "nan"))


def x(seconds: float) -> float:
    return LEFT + (seconds + 4) * WIDE


def test_bar_covers_its_times() -> None:
    picture = drawn(incident(partition(0, bar(20, 70)), partition(1, bar(0, 10), bar(90, 100))))

    (alone,) = tipped(picture, "orders-0: ")
    assert span(alone) == pytest.approx((x(20), x(70)), abs=0.2)
    assert [span(each) for each in tipped(picture, "orders-1: ")] == [
        pytest.approx((x(0), x(10)), abs=0.2),
        pytest.approx((x(90), x(100)), abs=0.2),
    ]


@pytest.mark.parametrize("kind", ["inferred", "bounded"])
def test_uncertain_outages_are_striped_with_bounds(kind: str) -> None:
    picture = drawn(incident(partition(0, bar(20, 70, begin_kind=kind, begin_low=moment(10), end_high=moment(80)))))

    line, stripes = tipped(picture, "orders-0: ")
    assert stripes.get("fill") == f"url(#t1-{kind})"
    assert any(each.get("id") == f"t1-{kind}" for each in picture.iter())
    assert (float(line.get("x1", "")), float(line.get("x2", ""))) == pytest.approx((x(10), x(80)), abs=0.2)


def test_observed_outages_are_solid() -> None:
    (solid,) = tipped(drawn(incident(partition(0, bar(20, 70)))), "orders-0: ")

    assert (solid.get("class"), solid.get("fill")) == ("seen", None)


def test_open_outage_ends_with_an_arrow() -> None:
    body, arrow = tipped(drawn(incident(partition(0, bar(20, None)))), "orders-0: ")

    assert span(body)[1] == pytest.approx(x(100), abs=0.2)
    assert _is(arrow, "path")


def test_absence_is_striped_until_it_was_detected() -> None:
    away = absence(1, last_sign_at=moment(0), detected_at=moment(30), back_at=moment(90))

    striped, solid = tipped(drawn(incident(partition(0, bar(0, 60))), absences=(away,)), "broker 1, failed")

    assert span(striped) == pytest.approx((x(0), x(30)), abs=0.2)
    assert span(solid) == pytest.approx((x(30), x(90)), abs=0.2)


def test_absences_outside_the_incident_are_not_drawn() -> None:
    earlier = absence(3, detected_at=moment(-500), back_at=moment(-400))
    before = controllership(controller=9, elected_at=moment(-900), resigned_at=moment(-500))
    then = controllership(controller=2, controller_epoch=6, elected_at=moment(-500), last_act_at=moment(900))

    picture = drawn(incident(partition(0, bar(0, 60))), absences=(earlier,), controllers=(before, then))

    texts = [element.text or "" for element in picture.iter() if _is(element, "text")]
    assert "2, epoch 6" in texts
    assert not any(text.startswith(("broker 3", "9")) for text in texts)


def test_long_names_are_shortened_with_full_tip() -> None:
    name = "a.topic.with.a.name.that.is.longer.than.its.row.could.draw"
    picture = drawn(incident(partition(3, bar(0, 60), topic=name)))

    (shown,) = [each for each in tipped(picture, f"{name}-3") if _is(each, "text")]
    assert "".join(title.tail or "" for title in shown).endswith("raw-3")  # names differ by their number
    assert "…" in "".join(shown.itertext())


def test_hostile_names_are_text() -> None:
    picture = drawn(incident(partition(0, bar(0, 60), topic="<script>&\x00")))

    assert not [each for each in picture.iter() if _is(each, "script")]
    assert tipped(picture, "<script>&\ufffd-0: ")


def test_texts_do_not_overlap() -> None:
    many = [partition(number, bar(number, number + 30)) for number in range(20)]
    away = tuple(absence(each, detected_at=moment(each), back_at=moment(50)) for each in range(30))
    controllers = tuple(
        controllership(
            controller=each, controller_epoch=each, elected_at=moment(each * 3), last_act_at=moment(each * 3 + 3)
        )
        for each in range(20)
    )
    picture = drawn(incident(*many), absences=away, controllers=controllers)

    boxes = []
    for each in picture.iter():
        if _is(each, "text"):
            text = each.text or "".join(title.tail or "" for title in each)
            long, left, y = width(text, 11), float(each.get("x", "")), float(each.get("y", ""))
            left -= {"end": long, "middle": long / 2}.get(each.get("text-anchor", ""), 0)
            boxes.append((left, left + long, y, text))
    for one, other in itertools.combinations(boxes, 2):
        apart = one[1] <= other[0] + 1 or other[1] <= one[0] + 1 or abs(one[2] - other[2]) >= 10
        assert apart, (one, other)
    high = float(picture.get("height", ""))
    assert all(y <= high for _, _, y, _ in boxes)


def test_parts_of_a_band_fill_its_bar_in_proportion() -> None:
    band = Band(
        name="all",
        outages=3,
        mean_ms=100,
        detection_ms=50,
        queue_ms=0,
        waiting_ms=0,
        election_ms=25,
        send_ms=0,
        apply_ms=15,
        unknown_ms=10,
    )
    picture = ElementTree.fromstring(parts(1, (band,)))

    bars = [each for each in picture.iter() if _is(each, "rect") and len(each)]
    wide = [float(each.get("width", "")) for each in bars]
    assert [each.get("class") for each in bars] == ["part-detection", "part-election", "part-apply", "part-unknown"]
    assert [each / sum(wide) for each in wide] == pytest.approx([0.5, 0.25, 0.15, 0.1], abs=0.001)


@pytest.mark.parametrize("seconds", [0.05, 1, 37, 3600, 86_400 * 3, 86_400 * 400])
def test_ticks_are_few_and_at_multiples_of_their_step(seconds: float) -> None:
    scale = TimeScale(moment(0.003), moment(0.003 + seconds), left=0, right=800)

    ticks = list(scale.ticks(datetime.timedelta()))

    assert 1 <= len(ticks) <= 10
    assert all((tick - EPOCH) % scale.step == datetime.timedelta() for tick in ticks)
    assert all(scale.x(after) - scale.x(before) >= 60 for before, after in itertools.pairwise(ticks))


def test_tick_texts_are_round_in_the_printed_zone() -> None:
    picture = drawn(incident(partition(0, bar(0, 60)), end=86_400), moments=Moments("+05:30"))

    texts = [element.text or "" for element in picture.iter() if _is(element, "text")]
    times = [text for text in texts if re.fullmatch(r"\d\d:\d\d", text)]
    assert len(times) >= 4
    assert {time[3:] for time in times} == {"00"}
    assert [text for text in texts if text.endswith("2024")] == ["1 May 2024", "2 May 2024"]


def test_texts_are_truncated_only_if_too_wide() -> None:
    assert fitted("orders-1", 200) == "orders-1"
    assert fitted("orders-1", 30).endswith("…")
    assert width(fitted("W" * 50, 100)) <= 100
    assert fitted("W", 1) == ""
