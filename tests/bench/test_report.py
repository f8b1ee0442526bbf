"""The generated performance page: tables, missing results, and pictures."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from bench.figures import Figure, Found, Results, Unit, read_all, write
from bench.goals import GOALS, RACE, Goal, printed
from bench.report.__main__ import main
from bench.report.drawing import LogScale, Point, curves, log_scale, pairs
from bench.report.page import SECTIONS, page
from bench.report.parts import Parts
from bench.spread import spread
from tests.support.tree import ROOT

PAGE = ROOT / "docs" / "performance.md"


def stored(bench: str, figures: dict[str, tuple[Unit, tuple[float, ...]]]) -> Results:
    collected = Found(bench, seed=3, settings={"rate": 100.0, "repeats": 2})
    for name, (unit, runs) in figures.items():
        collected.add(name, unit, *runs)
    return collected.results(loop="uvloop")


def race() -> Results:
    times = {
        "stock/standby failover/total": (24.0, 26.0, 25.0),
        "kactl/standby failover/total": (2.0, 2.5, 2.1),
        "stock/broker return/total": (0.4, 0.5, 0.45),
        "kactl/broker return/total": (0.5, 0.6, 0.55),
    }
    return stored("race", {f"30x100000/{name}": ("s", runs) for name, runs in times.items()})


def election() -> Results:
    figures: dict[str, tuple[Unit, tuple[float, ...]]] = {}
    for size, total in ((100_000, 50.0), (1_000_000, 210.0), (2_000_000, 420.0)):
        figures[f"sqlite/{size}/first/total"] = ("ms", (total * 1.2,))
        figures[f"sqlite/{size}/repeated/total"] = ("ms", (total, total * 1.1, total * 0.9))
        figures[f"sqlite/{size}/memory/table"] = ("B", (60.0,))
    figures["objects/1000000/total"] = ("ms", (8400.0,))
    return stored("election", figures)


def generated(folder: Path, *results: Results) -> str:
    for result in results:
        write(folder / "results" / f"{result.what}.json", result)
    assert main([str(folder / "results"), "--out", str(folder / "docs" / "performance.md")]) == 0
    return (folder / "docs" / "performance.md").read_text()


def row(text: str, begins: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {begins} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_race_table_has_figures_ratio_spread_and_goal(tmp_path: Path) -> None:
    text = generated(tmp_path, race())

    assert row(text, "standby failover, all brokers informed") == [
        "standby failover, all brokers informed",
        "25.0 (24.0-26.0)",
        "2.10 (2.00-2.50)",
        "11.9 (9.60-13.0)",
        "≥ 12, not reached",
    ]


def test_missed_goal_is_marked_as_not_reached(tmp_path: Path) -> None:
    text = generated(tmp_path, race())

    assert row(text, "broker return")[3:] == ["0.818 (0.667-1.00)", "≥ 1.2, not reached"]


def test_goals_are_ratios_of_medians_within_one_run(tmp_path: Path) -> None:
    text = generated(tmp_path, election())

    assert row(text, "objects / columns, broker failure at 1 M partitions")[1:3] == ["40.0 (36.4-44.4)", ">= 30"]
    assert row(text, "broker failure, 2 M / 1 M partitions")[1:3] == ["2.00 (1.64-2.44)", "<= 2.2"]
    assert row(text, "p99 of single elections, in a large failure / idle")[1] == "not measured"


def test_latency_states_how_many_failures_were_measured(tmp_path: Path) -> None:
    figures: dict[str, tuple[Unit, tuple[float, ...]]] = {
        "failure/told": ("ms", (5.0, 6.0, 7.0)),
        "failure/affected": ("count", (98.0, 98.0, 98.0)),
    }

    text = generated(tmp_path, stored("latency", figures))

    assert "100 elections a second; 3 failures, each of which affected 98 partitions and took 6.00 ms" in " ".join(
        text.split()
    )


def test_missing_benchmarks_are_marked_as_not_measured(tmp_path: Path) -> None:
    text = generated(tmp_path, election())

    for bench in ("failover", "latency", "channel", "store"):
        assert f"*Not measured in the published run: `python -m bench.{bench} --full`.*" in text
    assert "*Not measured in the published run: `make race`.*" in text
    assert "bench.election --full`.*" not in text


def test_page_without_results_marks_every_benchmark(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()

    text = generated(tmp_path)

    assert "*There are no results.*" in text
    assert text.count("*Not measured in the published run") == len(SECTIONS)


def test_page_accepts_incomplete_figures(tmp_path: Path) -> None:
    partial = {
        "failover": {"sqlite/1000/cold/told": ("ms", (5.0, 6.0))},
        "answers": {"kactl/answer": ("ms", (90.0,)), "kactl/behind": ("count", (0.0, 1.0))},
        "ownership": {"6x12/kactl/join/moved": ("count", (2.0, 1.0))},
        "outage": {"3x1/1000/all led": ("ms", (6004.0,))},
        "latency": {"pooled/idle/durable/p99": ("ms", (5.0,))},
        "channel": {"encode/LeaderAndIsr v7/partition": ("ns", (150.0,))},
        "store": {"batches/100x20/write/partition": ("us", (7.0,)), "floor/1000/read/500": ("us", (1.7,))},
        "election": {"memory/1000/repeated/total": ("ms", (5.0,))},
        "forensics": {"2000/lines": ("count", (2000.0,)), "2000/ingest/warm/line": ("us", (4.0,))},
        "stores": {"etcd/10000/takeover": ("ms", (919.0,))},
        "security": {"open/request": ("us", (100.0,)), "SSL/request": ("us", (150.0,))},
        "encryption": {"1000/PLAINTEXT/failure": ("ms", (10.0,)), "1000/SSL/failure": ("ms", (12.0,))},
        "whatif": {"6x600/even/classes": ("count", (9.0,)), "live/6x600/stoppable": ("s", (0.002,))},
    }

    text = generated(tmp_path, *(stored(bench, figures) for bench, figures in partial.items()))  # type: ignore[arg-type]

    assert text.count("*Not measured in the published run") == 1
    assert row(text, "3 processes of 1")[1:] == ["1,000", "–", "6,004", "–"]
    assert row(text, "kactl")[1:] == ["90.0", "–", "–", "1 of 6", "–", "–"]
    assert row(text, "LeaderAndIsr v7")[1] == "150"
    assert row(text, "SSL")[1:] == ["–", "–", "150", "1.50 (1.50-1.50)"]
    assert [line.count("1.20 (1.20-1.20)") for line in text.splitlines() if "| 1,000 | SSL |" in line] == [1]
    assert row(text, "2,000 lines, warm")[1:4] == ["250,000", "–", "4.00"]
    assert row(text, "6 brokers, 600 partitions, even")[1] == "9"


def test_ingest_without_jobs_is_listed_under_ingest_only(tmp_path: Path) -> None:
    forensics = {
        "2000/lines": ("count", (2000.0,)),
        "2000/ingest/warm/line": ("us", (4.0,)),
        "2000/all jobs/time": ("s", (3.0,)),
        "2000/jobs/skew/time": ("s", (1.5,)),
        "20000/lines": ("count", (20000.0,)),
        "20000/ingest/warm/line": ("us", (5.0,)),
    }

    text = generated(tmp_path, stored("forensics", forensics))  # type: ignore[arg-type]

    assert row(text, "20,000 lines, warm")[1] == "200,000"
    assert row(text, "2,000 lines, all jobs")[1] == "3.00"
    assert row(text, "skew") == ["skew", "–", "1.50", "–"]
    assert "20,000 lines, all jobs" not in text


def test_page_names_machine_settings_and_versions(tmp_path: Path) -> None:
    one, other = race(), election()
    other = msgspec.structs.replace(other, machine=msgspec.structs.replace(other.machine, cores=64))

    text = generated(tmp_path, one, other)

    assert f"{one.machine.cores} cores" in text
    assert "64 cores" in text
    assert one.machine.kernel in text
    assert f"numpy {one.versions['numpy']}" in text
    assert one.made in text


def test_pictures_are_beside_the_page_and_old_ones_are_removed(tmp_path: Path) -> None:
    old = tmp_path / "docs" / "performance" / "old.svg"
    old.parent.mkdir(parents=True)
    old.write_text("<svg/>")

    text = generated(tmp_path, race(), election())

    named = set(re.findall(r"!\[[^]]+\]\(performance/([\w-]+\.svg)\)", text))
    assert named == {path.name for path in old.parent.glob("*.svg")} == {"race-30x100000.svg", "election.svg"}
    for path in old.parent.glob("*.svg"):
        ET.parse(path)


def test_invalid_results_file_is_named_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "other.json"
    file.write_text("{}")

    assert main([str(file), "--out", str(tmp_path / "page.md")]) == 2
    assert str(file) in capsys.readouterr().err
    assert not (tmp_path / "page.md").exists()


def test_published_page_and_pictures_are_up_to_date() -> None:
    parts = Parts(PAGE)

    text = page(read_all([ROOT / "bench" / "results"]), parts)

    command = "run: python -m bench.report bench/results --out docs/performance.md"
    assert PAGE.read_text() == text, command
    assert {path: path.read_text() for path in (PAGE.parent / PAGE.stem).glob("*.svg")} == parts.pictures, command


# -- drawing -----------------------------------------------------------------------------------------------------------


def test_equal_ratios_have_equal_distances() -> None:
    scale = LogScale(1.0, 1000.0, 0.0, 300.0)

    assert [scale.at(value) for value in (1, 10, 100, 1000)] == pytest.approx([0, 100, 200, 300])


def test_log_scale_contains_all_values_and_at_least_a_decade() -> None:
    wide, narrow = log_scale([2.0, 5000.0], begin=0, end=1), log_scale([5.0, 6.0], begin=0, end=1)

    assert wide.low < 2
    assert wide.high > 5000
    assert narrow.low < 5 < 6 < narrow.high
    assert narrow.high / narrow.low >= 9.99


def test_cost_proportional_to_size_is_a_straight_rising_line() -> None:
    points = [Point(size, spread([size / 10])) for size in (1e3, 1e4, 1e5)]

    tree = ET.fromstring(curves("t", {"text": points, "nothing": []}, x="partitions", y="ms"))

    (line,) = tree.iter("{http://www.w3.org/2000/svg}polyline")
    places = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
    (x1, y1), (x2, y2), (x3, y3) = places
    assert x1 < x2 < x3
    assert y1 > y2 > y3
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2)
    assert y1 - y2 == pytest.approx(y2 - y3, abs=0.2)
    assert "nothing" not in "".join(tree.itertext())


def test_pairs_show_series_names_labels_and_ratio() -> None:
    rows = [("a <b>", {"stock": spread([10.0, 12.0]), "kactl": spread([1.0])}, "11 (10-12)")]

    tree = ET.fromstring(pairs("t", rows, x="seconds"))

    texts = "".join(tree.itertext())
    assert all(text in texts for text in ("stock", "kactl", "a <b>", "11 (10-12)"))


# -- goals -------------------------------------------------------------------------------------------------------------


def test_goal_is_reached_on_one_side_of_its_bound_only() -> None:
    least = Goal(bench="b", what="w", above="a", at_least=4)
    most = Goal(bench="b", what="w", above="a", at_most=4)

    assert [least.reached(value) for value in (3.9, 4, 5)] == [False, True, True]
    assert [most.reached(value) for value in (3, 4, 4.1)] == [True, True, False]
    assert (least.wanted, most.wanted) == (">= 4", "<= 4")


def test_printed_goals_are_those_with_figures() -> None:
    figures = {"pooled/loaded/durable/p99": Figure("ms", (30.0,)), "pooled/idle/durable/p99": Figure("ms", (6.0,))}

    text = printed(figures, "latency")

    assert "5.00" in text
    assert "not reached" in text
    assert printed(figures, "election") == ""


def test_goals_are_unique_per_size() -> None:
    assert len({(goal.bench, goal.above, goal.below) for goal in GOALS}) == len(GOALS)
    assert len({(goal.size, goal.path) for goal in RACE}) == len(RACE)
