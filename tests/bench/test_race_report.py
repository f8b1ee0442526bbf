"""Tables of the race: medians, spreads and ratios of the results; missing results are omitted."""

from pathlib import Path

import pytest

from bench.figures import Figure, Found, Results
from bench.race.__main__ import main, server_versions, shape_of, turns
from bench.race.contenders import heap_for
from bench.race.report import compared, contenders, costs_of, sizes, times_of, whole

SIZE = "30x100000"


def found() -> Results:
    race = Found("race")
    for phase, name, unit, stock, kactl in (
        ("standby failover", "total", "s", (16.0, 15.0, 17.0), (2.0, 1.0, 4.0)),
        ("standby failover", "processor controller", "s", (20.0, 20.0, 20.0), (2.0, 2.0, 2.0)),
        ("standby failover", "peak memory", "MB", (1000.0, 1000.0, 1000.0), (100.0, 100.0, 100.0)),
        ("broker failure", "isr", "s", (1.2,), (0.1,)),
        ("broker failure", "StopReplica requests", "count", (0.0,), (0.0,)),
        ("broker failure", "strange requests", "count", (1.0,), (0.0,)),
    ):
        race.add(f"{SIZE}/stock/{phase}/{name}", unit, *stock)  # type: ignore[arg-type]
        race.add(f"{SIZE}/kactl/{phase}/{name}", unit, *kactl)  # type: ignore[arg-type]
    race.add("10x10000/kactl/broker return/isr", "s", 0.05)
    return race.results(loop="none")


def row(table: str, label: str) -> list[str]:
    (line,) = [line for line in table.splitlines() if line.startswith(label)]
    return line.removeprefix(label).split()


def test_ratio_is_of_medians_and_its_spread_of_any_two_runs() -> None:
    ratio = compared(Figure("s", (16.0, 15.0, 17.0)), Figure("s", (2.0, 1.0, 4.0)))

    assert ratio is not None
    assert (ratio.value, ratio.least, ratio.greatest) == (8.0, 15 / 4, 17 / 1)


@pytest.mark.parametrize(("slow", "fast"), [((1.0,), (0.0,)), ((0.0,), (1.0,)), ((1.0, 1.0), (1.0, 0.0))])
def test_missing_results_are_not_compared(slow: tuple[float, ...], fast: tuple[float, ...]) -> None:
    assert compared(Figure("s", slow), Figure("s", fast)) is None


def test_times_and_costs_are_in_separate_tables() -> None:
    times, costs = times_of(found(), SIZE), costs_of(found(), SIZE)

    assert row(times, "standby failover: total") == [
        "16.0",
        "(15.0-17.0)",
        "2.00",
        "(1.00-4.00)",
        "8.00",
        "(3.75-17.0)",
    ]
    assert row(times, "broker failure: isr") == ["1.20", "0.1", "12.0", "(12.0-12.0)"]
    assert "processor" not in times
    assert row(costs, "standby failover: peak memory, MB")[-2:] == ["10.0", "(10.0-10.0)"]
    assert row(costs, "broker failure: strange requests")[1:] == ["0", "-"]  # no ratio to zero
    assert "isr" not in costs


def test_row_of_zeros_is_omitted() -> None:
    assert "StopReplica" not in whole(found())


def test_size_run_by_one_contender_is_not_compared() -> None:
    table = times_of(found(), "10x10000")

    assert sizes(found()) == [SIZE, "10x10000"]
    assert contenders(found(), "10x10000") == ["kactl"]
    assert row(table, "broker return: isr") == ["0.05"]


@pytest.mark.parametrize(("partitions", "heap_mb"), [(60, 1024), (10_000, 1024), (100_000, 3072), (200_000, 4096)])
def test_memory_limit_grows_with_the_partitions(partitions: int, heap_mb: int) -> None:
    assert heap_for(partitions) == heap_mb


def test_contenders_alternate_in_going_first() -> None:
    assert list(turns(("stock", "kactl"), 3)) == [
        (1, "stock"),
        (1, "kactl"),
        (2, "kactl"),
        (2, "stock"),
        (3, "stock"),
        (3, "kactl"),
    ]


def test_files_of_another_race_are_unchanged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kept").mkdir()

    assert main(["--sizes", "3x60", "--keep", str(tmp_path / "kept")]) == 2
    assert "is there already" in capsys.readouterr().err


def test_size_is_brokers_and_partitions() -> None:
    assert shape_of("30x100000") == (30, 100_000)


@pytest.mark.parametrize("size", ["30", "x", "30x", "0x20", "30x100001", "2x20", "3x-20", "3X20"])
def test_invalid_size_is_rejected(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["--sizes", size])

    assert refused.value.code == 2
    assert size in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--contenders", "zookeeper"], ["--skip", "broker failure"], ["--until", "never"]])
def test_unknown_contender_and_required_phase_are_rejected(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        main(words)

    assert refused.value.code == 2
    assert words[1] in capsys.readouterr().err


def test_missing_java_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("nothing")))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    assert main(["--sizes", "3x60"]) == 2
    assert "no java on PATH" in capsys.readouterr().err


@pytest.mark.java
def test_servers_are_recognised_by_their_jars() -> None:
    versions = server_versions("/jars/kafka_2.13-3.9.1.jar:/jars/kafka-clients-1.0.jar:/jars/zookeeper-3.8.4.jar")

    assert (versions["kafka"], versions["zookeeper"]) == ("3.9.1", "3.8.4")
