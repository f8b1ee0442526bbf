"""Sections of the page for forensics: ingest, jobs, and what-if analysis."""

from collections.abc import Mapping
from typing import Final

from bench.figures import Figure, Results
from bench.tables import markdown, number

from .benches import cell, children, median
from .parts import Parts

_SWEEPS: Final = ("open", "brokers", "pairs", "racks", "rack+broker", "rolling")


def forensics(results: Results, parts: Parts) -> str:
    """Returns the costs of ingest and of all jobs by lines of the logs, and of each job."""
    figures = results.figures
    sizes = sorted(int(name) for name in _roots(figures) if name.isdecimal())
    ingested, together, asked = [], [], []
    for size in sizes:
        lines = median(figures, f"{size}/lines")
        for how in ("first", "warm"):
            at = f"{size}/ingest/{how}"
            if f"{at}/line" in figures:
                speed = number(1e6 / figures[f"{at}/line"].median)
                costs = (cell(figures, f"{at}/{what}") for what in ("time", "line", "line, processor"))
                ingested.append([f"{lines} lines, {how}", speed, *costs])
        if f"{size}/all jobs/time" not in figures:
            continue
        asked.append(size)
        for how in ("all jobs", "one by one"):
            whats = ("time", "processor", "line, processor")
            together.append([f"{lines} lines, {how}", *(cell(figures, f"{size}/{how}/{what}") for what in whats)])
    head = [
        f"{median(figures, f'{size}/lines')} lines: {what}" for size in asked for what in ("rows", "s", "its CPU s")
    ]
    jobs = [[name, *_of_job(figures, name, asked)] for name in children(figures, f"{asked[0]}/jobs")] if asked else []
    return "\n\n".join(
        (
            markdown(["ingest", "lines a second", "s", "µs a line", "its processor, µs a line"], ingested),
            markdown(["jobs", "s", "processor, s", "processor, µs a line"], together),
            markdown(["one by one", *head], jobs),
        )
    )


def _of_job(figures: Mapping[str, Figure], name: str, sizes: list[int]) -> list[str]:
    cells = []
    for size in sizes:
        at = f"{size}/jobs/{name}"
        cells += [median(figures, f"{at}/rows"), cell(figures, f"{at}/time"), cell(figures, f"{at}/processor")]
    return cells


def whatif(results: Results, parts: Parts) -> str:
    """Returns the durations of sweeps by cluster and placement."""
    figures = results.figures
    rows, sparks = [], []
    for cluster in (name for name in _roots(figures) if "x" in name):
        brokers, _, partitions = cluster.partition("x")
        for placement in children(figures, cluster):
            at = f"{cluster}/{placement}"
            what = f"{brokers} brokers, {int(partitions):,} partitions, {placement}"
            if f"{at}/classes" in figures:
                times = (cell(figures, f"{at}/{name}") for name in _SWEEPS)
                rows.append([what, median(figures, f"{at}/classes"), median(figures, f"{at}/pairs/scenarios"), *times])
            if f"{at}/Spark/open" in figures:
                sparks.append([what, cell(figures, f"{at}/Spark/open"), cell(figures, f"{at}/Spark/brokers")])
    said = [markdown(["s", "classes", "pairs", *_SWEEPS], rows)]
    if sparks:
        said.append(markdown(["with Spark, s", "open", "brokers"], sparks))
    return "\n\n".join(said)


def _roots(figures: Mapping[str, Figure]) -> list[str]:
    """Returns the first parts of all names."""
    return list(dict.fromkeys(name.split("/", 1)[0] for name in figures))
