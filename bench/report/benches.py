"""Sections of the page for the benchmarks that run in one process."""

from collections.abc import Iterable, Mapping
from typing import Final

from bench import tables
from bench.failover import STAGES as FAILOVER_STAGES
from bench.figures import Figure, Results, Setting
from bench.spread import ratio
from bench.tables import markdown, runs, times

from .drawing import Point, curves
from .parts import Parts

_MISSING: Final = "–"
_PERCENTILES: Final = ("p50", "p90", "p99", "p99.9", "max")


def election(results: Results, parts: Parts) -> str:
    """Returns the duration of a broker failure by number of partitions and by stage."""
    figures = results.figures
    kinds = [kind for kind in ("sqlite", "memory") if sizes(figures, kind)]
    series: dict[str, list[Point]] = {}
    for kind in kinds:
        series[f"kactl over {_NAMES[kind]}"] = points(figures, kind, "repeated/total")
        series["· encoding"] = points(figures, kind, "repeated/encode")
        series["· committing"] = points(figures, kind, "repeated/commit")
        series["· deciding"] = points(figures, kind, "repeated/elect")
    series["objects"] = points(figures, "objects", "total")
    drawn = curves("One of 30 brokers fails", series, x="partitions in the cluster", y="milliseconds")
    stages = ("find", "elect", "commit", "apply", "gather", "encode", "other")
    rows = []
    for kind in kinds:
        for size in sizes(figures, kind):
            at = f"{kind}/{size}"
            rows.append(
                [
                    f"{size:,}",
                    cell(figures, f"{at}/first/total"),
                    cell(figures, f"{at}/repeated/total"),
                    cell(figures, f"{at}/repeated/per affected"),
                    *(median(figures, f"{at}/repeated/{stage}") for stage in stages),
                ]
            )
    head = ["partitions", "first, ms", "repeated, ms", "ns per affected partition", *stages]
    objects = [
        [
            f"{size:,}",
            cell(figures, f"objects/{size}/total"),
            cell(figures, f"objects uncollected/{size}/total"),
            quotient(figures, f"objects/{size}/total", f"{kinds[0]}/{size}/repeated/total") if kinds else _MISSING,
        ]
        for size in sizes(figures, "objects")
    ]
    memory = [
        [f"{size:,}", median(figures, f"{kind}/{size}/memory/table"), median(figures, f"{kind}/{size}/memory/process")]
        for kind in kinds
        for size in sizes(figures, kind)
    ]
    said = [parts.picture("election", "Cost of a broker's failure against partitions", drawn), markdown(head, rows)]
    if objects:
        said.append(markdown(["object form", "ms", "ms without the collector", "objects ÷ columns"], objects))
    said.append(markdown(["bytes of a partition", "in the table", "of the whole process"], memory))
    return "\n\n".join(said)


def failover(results: Results, parts: Parts) -> str:
    """Returns the duration of takeovers by number of partitions."""
    figures = results.figures
    kinds = [kind for kind in ("memory", "sqlite", "zookeeper") if sizes(figures, kind)]
    series = {
        f"{how}, {_NAMES[kind]}": points(figures, kind, f"{how}/told")
        for kind in reversed(kinds)
        for how in ("cold", "warm")
    }
    drawn = curves("Takeover, until all requests are encoded", series, x="partitions in the cluster", y="milliseconds")
    said = [parts.picture("failover", "Cost of a takeover against partitions", drawn)]
    for kind in kinds:
        rows = []
        for size in sizes(figures, kind):
            at = f"{kind}/{size}"
            for how in ("cold", "warm"):
                stages = (cell(figures, f"{at}/{how}/{stage}") for stage in FAILOVER_STAGES)
                gain = quotient(figures, f"{at}/cold/told", f"{at}/warm/told") if how == "warm" else ""
                rows.append([f"{size:,}", how, *stages, gain])
        said.append(markdown([f"{_NAMES[kind]}, ms", "", *FAILOVER_STAGES, "cold ÷ warm"], rows))
    return "\n\n".join(said)


def latency(results: Results, parts: Parts) -> str:
    """Returns percentiles of single elections, idle and loaded."""
    figures = results.figures
    rows, repeats = [], []
    for what in ("durable", "told"):
        for phase in ("idle", "loaded"):
            at = f"pooled/{phase}/{what}"
            counted = cell(figures, f"{at}/elections")
            rows.append([f"{what}, {phase}", counted, *(cell(figures, f"{at}/{each}") for each in _PERCENTILES)])
            each_repeat = (cell(figures, f"{phase}/{what}/{each}") for each in ("p50", "p90", "p99", "max"))
            repeats.append([f"{what}, {phase}", *each_repeat])
    asked = results.settings
    said = (
        f"{asked.get('rate'):g} elections a second; {asked.get('repeats')} failures, each of which affected "
        f"{median(figures, 'failure/affected')} partitions and took {median(figures, 'failure/told')} ms until all "
        "brokers were informed."
    )
    return "\n\n".join(
        (
            said,
            markdown(["all runs pooled, ms", "elections", *_PERCENTILES], rows),
            markdown(["per run, ms", "p50", "p90", "p99", "max"], repeats),
        )
    )


def channel(results: Results, parts: Parts) -> str:
    """Returns the costs of encoding, flushing, sending, responses, and a slow broker."""
    figures = results.figures
    encoded = [
        [name, *(cell(figures, f"encode/{name}/{what}") for what in ("partition", "again", "size of a partition"))]
        for name in children(figures, "encode")
    ]
    flushed = [
        [f"{int(size):,}", *(cell(figures, f"flush/{size}/{what}") for what in ("gather", "encode", "partition"))]
        for size in children(figures, "flush")
    ]
    whats = ("bytes", "total", "rate", "processor", "longest hold")
    sent = [
        [_of_size(size), *(cell(figures, f"send/{size}/{what}") for what in whats)]
        for size in children(figures, "send")
    ]
    answered = [[name, cell(figures, f"answer/{name}/partition")] for name in children(figures, "answer")]
    slow = [
        [
            f"{int(size):,} partitions, {how}",
            *(cell(figures, f"slow broker/{size}/{how}/{what}") for what in ("requests", "bytes", "processor")),
        ]
        for size in children(figures, "slow broker")
        for how in children(figures, f"slow broker/{size}")
    ]
    tables = (
        (["encoding", "ns per partition state", "µs, body known", "bytes per state"], encoded),
        (["a chunk to all brokers, partitions", "gather, ms", "encode, ms", "ns per partition"], flushed),
        (["sending", "MB", "ms", "MB/s", "processor, ms", "longest hold of the loop, ms"], sent),
        (["responses without an error", "ns per partition"], answered),
        (["requests to a slow broker afterwards", "requests", "MB", "processor, ms"], slow),
    )
    return "\n\n".join(markdown(head, rows) for head, rows in tables if rows)


def store(results: Results, parts: Parts) -> str:
    """Returns the costs of reads and writes over each store, for several batch sizes, and the lower bound."""
    figures = results.figures
    rows = [
        [f"{_NAMES[kind]}, {size:,} partitions", *(cell(figures, f"{kind}/{size}/{what}") for what in _STORE_FIGURES)]
        for kind in ("memory", "sqlite", "zookeeper", "kazoo")
        for size in sizes(figures, kind)
    ]
    head = ["µs per partition", "read", "its processor", "topics read", "written", "its processor"]
    said = [markdown(head, rows)]
    floors = [
        [f"{what}, {batch} in a request", cell(figures, f"floor/{size}/{what}/{batch}")]
        for size in sizes(figures, "floor")
        for what in ("read", "write")
        for batch in children(figures, f"floor/{size}/{what}")
    ]
    if floors:
        said.append(markdown(["ZooKeeper alone", "µs per node"], floors))
    grid = children(figures, "batches")
    if grid:
        batches, windows = (
            sorted({int(part) for part in parts_}) for parts_ in zip(*(each.split("x") for each in grid), strict=True)
        )
        table = [
            [str(batch), *(cell(figures, f"batches/{batch}x{window}/write/partition") for window in windows)]
            for batch in batches
        ]
        said.append(markdown(["writes in a multi ↓, multis in flight →", *map(str, windows)], table))
    return "\n\n".join(said)


_STORE_FIGURES: Final = ("read/partition", "read/processor", "topics/partition", "write/partition", "write/processor")


_NAMES: Final = {"sqlite": "SQLite", "zookeeper": "ZooKeeper", "memory": "memory", "kazoo": "ZooKeeper through kazoo"}


# -- reading figures ---------------------------------------------------------------------------------------------------


def children(figures: Mapping[str, Figure], prefix: str) -> list[str]:
    """Returns the names directly below a path."""
    below = (name.removeprefix(f"{prefix}/") for name in figures if name.startswith(f"{prefix}/"))
    return list(dict.fromkeys(name.split("/", 1)[0] for name in below))


def sizes(figures: Mapping[str, Figure], prefix: str) -> list[int]:
    return sorted(int(name) for name in children(figures, prefix) if name.isdecimal())


def points(figures: Mapping[str, Figure], prefix: str, name: str) -> list[Point]:
    """Returns a curve over all sizes that have the figure with a value above zero."""
    found = ((size, figures.get(f"{prefix}/{size}/{name}")) for size in sizes(figures, prefix))
    return [Point(size, each.spread) for size, each in found if each is not None and each.spread.least > 0]


def cell(figures: Mapping[str, Figure], name: str) -> str:
    return runs(figures[name]) if name in figures else _MISSING


def median(figures: Mapping[str, Figure], name: str) -> str:
    return tables.median(figures[name]) if name in figures else _MISSING


def quotient(figures: Mapping[str, Figure], above: str, below: str) -> str:
    if above not in figures or below not in figures:
        return _MISSING
    return times(ratio(figures[above].runs, figures[below].runs))


def _of_size(size: str) -> str:
    """Returns `30x100000` as "30 brokers, 100,000 partitions"."""
    brokers, _, partitions = size.partition("x")
    return f"{brokers} brokers, {int(partitions):,} partitions"


def settings_of(results: Iterable[Results]) -> list[list[str]]:
    """Returns the time and the settings of each benchmark."""
    return [
        [each.what, each.made, ", ".join(f"{name} {_plain(value)}" for name, value in each.settings.items() if value)]
        for each in results
    ]


def _plain(value: Setting) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
