"""Sections of the page for forensics: ingest, jobs, and what-if analysis."""

from collections.abc import Mapping
from typing import Final

from bench.figures import Figure, Results
from bench.tables import markdown, number

from .benches import cells, children, median, rows_of
from .parts import Parts

_LIVE: Final = ("copy", "prepare", "stoppable", "classes", "brokers", "pairs", "rolling", "restart")
_SWEEPS: Final = ("open", "brokers", "pairs", "racks", "rack+broker", "rolling")


def forensics(results: Results, parts: Parts) -> str:
    """Returns the costs of ingest and of all jobs by lines of the logs, and of each job."""
    figures = results.figures
    sizes = sorted(int(name) for name in _roots(figures) if name.isdecimal())
    lines = {size: median(figures, f"{size}/lines") for size in sizes}
    ingest = [
        [
            f"{lines[size]} lines, {start}",
            number(1e6 / figures[f"{size}/ingest/{start}/line"].median),
            *cells(figures, f"{size}/ingest/{start}", ("time", "line", "line, processor")),
        ]
        for size in sizes
        for start in ("first", "warm")
        if f"{size}/ingest/{start}/line" in figures
    ]
    with_jobs = [size for size in sizes if f"{size}/all jobs/time" in figures]
    modes = [
        (f"{lines[size]} lines, {mode}", f"{size}/{mode}") for size in with_jobs for mode in ("all jobs", "one by one")
    ]
    head = [f"{lines[size]} lines: {cost}" for size in with_jobs for cost in ("rows", "s", "its CPU s")]
    names = children(figures, f"{with_jobs[0]}/jobs") if with_jobs else []
    return "\n\n".join(
        (
            markdown(["ingest", "lines a second", "s", "µs a line", "its processor, µs a line"], ingest),
            markdown(
                ["jobs", "s", "processor, s", "processor, µs a line"],
                rows_of(figures, modes, ("time", "processor", "line, processor")),
            ),
            markdown(["one by one", *head], [[name, *_job(figures, name, with_jobs)] for name in names]),
        )
    )


def _job(figures: Mapping[str, Figure], name: str, sizes: list[int]) -> list[str]:
    costs = []
    for size in sizes:
        path = f"{size}/jobs/{name}"
        costs += [median(figures, f"{path}/rows"), *cells(figures, path, ("time", "processor"))]
    return costs


def whatif(results: Results, parts: Parts) -> str:
    """Returns the durations of sweeps by cluster and placement."""
    figures = results.figures
    local = []
    for cluster in (name for name in _roots(figures) if "x" in name):
        brokers, _, partitions = cluster.partition("x")
        for placement in children(figures, cluster):
            path = f"{cluster}/{placement}"
            label = f"{brokers} brokers, {int(partitions):,} partitions, {placement}"
            if f"{path}/classes" in figures:
                counts = (median(figures, f"{path}/{count}") for count in ("classes", "pairs/scenarios"))
                local.append([label, *counts, *cells(figures, path, _SWEEPS)])
    texts = [markdown(["s", "classes", "pairs", *_SWEEPS], local)]
    if "live" in _roots(figures):
        rows = []
        for cluster in children(figures, "live"):
            brokers, _, partitions = cluster.partition("x")
            label = f"{brokers} brokers, {int(partitions):,} partitions"
            rows.append([label, *cells(figures, f"live/{cluster}", _LIVE)])
        texts.append(markdown(["running controller, s", *_LIVE], rows))
    return "\n\n".join(texts)


def _roots(figures: Mapping[str, Figure]) -> list[str]:
    """Returns the first parts of all names."""
    return list(dict.fromkeys(name.split("/", 1)[0] for name in figures))
