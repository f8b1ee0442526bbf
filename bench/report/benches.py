"""Sections of the page for the benchmarks that run in one process."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from bench import tables
from bench.encryption import FIGURES as ENCRYPTION_FIGURES
from bench.failover import STAGES as FAILOVER_STAGES
from bench.figures import Figure, Results, Setting
from bench.outage import FIGURES as OUTAGE_FIGURES
from bench.sinks import PROTOCOLS
from bench.spread import ratio
from bench.stores import FIGURES as STORES_FIGURES
from bench.tables import markdown, number, runs, times

from .drawing import Point, curves
from .parts import Parts

_MISSING: Final = "–"
_PERCENTILES: Final = ("p50", "p90", "p99", "p99.9", "max")
_ELECTION_STAGES: Final = ("find", "elect", "commit", "apply", "gather", "encode", "other")
_STORES: Final = {"sqlite": "SQLite", "zookeeper": "ZooKeeper", "memory": "memory", "kazoo": "ZooKeeper through kazoo",
                  "etcd": "etcd"}  # fmt: skip


_OWNERS: Final = {
    "kactl": "participants of kactl",
    "kafka": "consumer group",
    "etcd": "election of etcd",
    "patroni": "lock of Patroni",
}
# Figures of `bench.ownership`, and the heads of their columns.
_OWNERSHIP: Final = {
    "deploy/changes mean": "deploy: changes a shard", "deploy/changes most": "most", "deploy/calls mean": "begins",
    "deploy/gap median": "without owner, ms", "deploy/gap most": "longest, ms", "join/moved": "join: moved",
    "join/interrupted": "others interrupted", "kill": "kill -9, ms", "restart": "all restarted, ms",
    "away/working": "database back: working", "above": "busiest above average",
}  # fmt: skip


def election(results: Results, parts: Parts) -> str:
    """Returns the duration of a broker failure by number of partitions and by stage."""
    figures = results.figures
    stores = [store for store in ("sqlite", "memory") if sizes(figures, store)]
    series: dict[str, list[Point]] = {}
    for store in stores:
        series[f"kactl over {_STORES[store]}"] = points(figures, store, "repeated/total")
        series["· encoding"] = points(figures, store, "repeated/encode")
        series["· committing"] = points(figures, store, "repeated/commit")
        series["· deciding"] = points(figures, store, "repeated/elect")
    series["objects"] = points(figures, "objects", "total")
    chart = curves("One of 30 brokers fails", series, x="partitions in the cluster", y="milliseconds")
    by_size = [(size, f"{store}/{size}") for store in stores for size in sizes(figures, store)]
    stages = [
        [
            f"{size:,}",
            *cells(figures, path, ("first/total", "repeated/total", "repeated/per affected")),
            *(median(figures, f"{path}/repeated/{stage}") for stage in _ELECTION_STAGES),
        ]
        for size, path in by_size
    ]
    objects = [
        [
            f"{size:,}",
            cell(figures, f"objects/{size}/total"),
            cell(figures, f"objects uncollected/{size}/total"),
            quotient(figures, f"objects/{size}/total", f"{stores[0]}/{size}/repeated/total") if stores else _MISSING,
        ]
        for size in sizes(figures, "objects")
    ]
    memory = [
        [f"{size:,}", median(figures, f"{path}/memory/table"), median(figures, f"{path}/memory/process")]
        for size, path in by_size
    ]
    head = ["partitions", "first, ms", "repeated, ms", "ns per affected partition", *_ELECTION_STAGES]
    texts = [parts.picture("election", "Cost of a broker's failure against partitions", chart), markdown(head, stages)]
    if objects:
        texts.append(markdown(["object form", "ms", "ms without the collector", "objects ÷ columns"], objects))
    texts.append(markdown(["bytes of a partition", "in the table", "of the whole process"], memory))
    return "\n\n".join(texts)


def failover(results: Results, parts: Parts) -> str:
    """Returns the duration of takeovers by number of partitions."""
    figures = results.figures
    stores = [store for store in ("memory", "sqlite", "zookeeper") if sizes(figures, store)]
    series = {
        f"{start}, {_STORES[store]}": points(figures, store, f"{start}/told")
        for store in reversed(stores)
        for start in ("cold", "warm")
    }
    chart = curves("Takeover, until all requests are encoded", series, x="partitions in the cluster", y="milliseconds")
    texts = [parts.picture("failover", "Cost of a takeover against partitions", chart)]
    for store in stores:
        rows = []
        for size in sizes(figures, store):
            path = f"{store}/{size}"
            gain = quotient(figures, f"{path}/cold/told", f"{path}/warm/told")
            rows.append([f"{size:,}", "cold", *cells(figures, f"{path}/cold", FAILOVER_STAGES), ""])
            rows.append([f"{size:,}", "warm", *cells(figures, f"{path}/warm", FAILOVER_STAGES), gain])
        texts.append(markdown([f"{_STORES[store]}, ms", "", *FAILOVER_STAGES, "cold ÷ warm"], rows))
    return "\n\n".join(texts)


def outage(results: Results, parts: Parts) -> str:
    """Returns the time without leaders by layout of the processes."""
    figures, rows = results.figures, []
    for layout, size in sorted({tuple(name.split("/")[:2]) for name in figures}):
        processes, _, participants = layout.partition("x")
        named = f"{processes} processes of {participants}"
        rows.append([named, f"{int(size):,}", *cells(figures, f"{layout}/{size}", OUTAGE_FIGURES[:3])])
    timeout = f"Session timeout {results.settings.get('session')} ms."
    return f"{timeout}\n\n{markdown(['participants, ms', 'partitions', *OUTAGE_FIGURES[:3]], rows)}"


def answers(results: Results, parts: Parts) -> str:
    """Returns the times of answers about topics, and how many looks right after them miss the change."""
    figures, rows = results.figures, []
    sides = {"kafka": "Kafka's controller", "kactl": "kactl"}
    for side, named in sides.items():
        looks = (figures.get(f"{side}/{figure}") for figure in ("behind", "grown/behind"))
        behind = [_MISSING if each is None else f"{sum(each.runs):g} of {3 * len(each.runs)}" for each in looks]
        times_of = cells(figures, side, ("answer", "orders", "complete", "grown/answer"))
        rows.append([named, *times_of[:3], behind[0], times_of[3], behind[1]])
    gains = [
        f"{what}: {figures[name].spread.median:.2f} ({figures[name].spread.low:.2f}-{figures[name].spread.high:.2f})"
        for what, name in (("creation", "answer/ratio"), ("growth", "grown/answer/ratio"))
        if name in figures
    ]
    return "\n\n".join(
        (
            f"Time of kactl's answer to Kafka's, run by run, median and quartiles: {'; '.join(gains) or _MISSING}.",
            markdown(["ms", "answer", "longest order", "complete", "looks behind", "growth", "looks behind"], rows),
        )
    )


def ownership(results: Results, parts: Parts) -> str:
    """Returns what happens to shards when workers come, stop and are killed, by contender."""
    figures, texts = results.figures, []
    for size in sorted({name.split("/")[0] for name in figures}, key=lambda size: int(size.partition("x")[0])):
        workers, _, shards = size.partition("x")
        rows = []
        for kind, named in _OWNERS.items():
            values = [figures.get(f"{size}/{kind}/{name}") for name in _OWNERSHIP]
            if any(values):
                rows.append([named, *(_MISSING if each is None else _spread(each) for each in values)])
        texts.append(f"{workers} workers, {int(shards):,} shards:\n\n{markdown(['', *_OWNERSHIP.values()], rows)}")
    settings = results.settings
    session = f"Sessions and leases of {settings.get('session')} ms, {settings.get('step')} s between two restarts"
    return "\n\n".join((f"{session}; median, least and greatest of {settings.get('runs')} runs.", *texts))


def _spread(figure: Figure) -> str:
    spread = figure.spread
    if spread.least == spread.greatest:
        return number(figure.median)
    return f"{number(figure.median)} ({number(spread.least)}-{number(spread.greatest)})"


def latency(results: Results, parts: Parts) -> str:
    """Returns percentiles of single elections, idle and loaded."""
    figures, settings = results.figures, results.settings
    failures = len(figures["failure/told"].runs) if "failure/told" in figures else _MISSING
    kinds = [(moment, phase) for moment in ("durable", "told") for phase in ("idle", "loaded")]
    pooled = [(f"{moment}, {phase}", f"pooled/{phase}/{moment}") for moment, phase in kinds]
    per_run = [(f"{moment}, {phase}", f"{phase}/{moment}") for moment, phase in kinds]
    return "\n\n".join(
        (
            f"{settings.get('rate'):g} elections a second; {failures} failures, each of which affected "
            f"{median(figures, 'failure/affected')} partitions and took {median(figures, 'failure/told')} ms until "
            "all brokers were informed.",
            markdown(
                ["all runs pooled, ms", "elections", *_PERCENTILES],
                rows_of(figures, pooled, ("elections", *_PERCENTILES)),
            ),
            markdown(
                ["per run, ms", "p50", "p90", "p99", "max"], rows_of(figures, per_run, ("p50", "p90", "p99", "max"))
            ),
        )
    )


def channel(results: Results, parts: Parts) -> str:
    """Returns the costs of encoding, flushing, sending, responses, and a slow broker."""
    figures = results.figures
    encode = [(name, f"encode/{name}") for name in children(figures, "encode")]
    flush = [(f"{int(size):,}", f"flush/{size}") for size in children(figures, "flush")]
    send = [(_cluster(size), f"send/{size}") for size in children(figures, "send")]
    answer = [(name, f"answer/{name}") for name in children(figures, "answer")]
    slow = [
        (f"{int(size):,} partitions, {mode}", f"slow broker/{size}/{mode}")
        for size in children(figures, "slow broker")
        for mode in children(figures, f"slow broker/{size}")
    ]
    costs = (
        (
            ["encoding", "ns per partition state", "µs, body known", "bytes per state"],
            rows_of(figures, encode, ("partition", "again", "size of a partition")),
        ),
        (
            ["a chunk to all brokers, partitions", "gather, ms", "encode, ms", "ns per partition"],
            rows_of(figures, flush, ("gather", "encode", "partition")),
        ),
        (
            ["sending", "MB", "ms", "MB/s", "processor, ms", "longest hold of the loop, ms"],
            rows_of(figures, send, ("bytes", "total", "rate", "processor", "longest hold")),
        ),
        (["responses without an error", "ns per partition"], rows_of(figures, answer, ("partition",))),
        (
            ["requests to a slow broker afterwards", "requests", "MB", "processor, ms"],
            rows_of(figures, slow, ("requests", "bytes", "processor")),
        ),
    )
    return "\n\n".join(markdown(head, rows) for head, rows in costs if rows)


def stores(results: Results, parts: Parts) -> str:
    """Returns the costs of a commit, a takeover and a broker failure over each durable store."""
    figures = results.figures
    rows = [
        [f"{size:,}", _STORES[store], *cells(figures, f"{store}/{size}", STORES_FIGURES)]
        for size in sizes(figures, "etcd")
        for store in ("sqlite", "zookeeper", "etcd")
    ]
    return markdown(["partitions", "", "commit, µs per partition", "takeover, ms", "broker failure, ms"], rows)


def store(results: Results, parts: Parts) -> str:
    """Returns the costs of reads and writes over each store, for several batch sizes, and the lower bound."""
    figures = results.figures
    stores = [
        (f"{_STORES[store]}, {size:,} partitions", f"{store}/{size}")
        for store in ("memory", "sqlite", "zookeeper", "kazoo")
        for size in sizes(figures, store)
    ]
    head = ["µs per partition", "read", "its processor", "topics read", "written", "its processor"]
    costs = ("read/partition", "read/processor", "topics/partition", "write/partition", "write/processor")
    texts = [markdown(head, rows_of(figures, stores, costs))]
    floors = [
        [f"{access}, {batch} in a request", cell(figures, f"floor/{size}/{access}/{batch}")]
        for size in sizes(figures, "floor")
        for access in ("read", "write")
        for batch in children(figures, f"floor/{size}/{access}")
    ]
    if floors:
        texts.append(markdown(["ZooKeeper alone", "µs per node"], floors))
    grid = [name.split("x") for name in children(figures, "batches")]
    if grid:
        batches = sorted({int(batch) for batch, _ in grid})
        windows = sorted({int(window) for _, window in grid})
        rows = [
            [str(batch), *(cell(figures, f"batches/{batch}x{window}/write/partition") for window in windows)]
            for batch in batches
        ]
        texts.append(markdown(["writes in a multi ↓, multis in flight →", *map(str, windows)], rows))
    return "\n\n".join(texts)


# -- reading figures ---------------------------------------------------------------------------------------------------


def security(results: Results, parts: Parts) -> str:
    """Returns the cost of connections and requests by security protocol, and of refused tokens."""
    figures = results.figures
    protocols = list(dict.fromkeys(name.split("/")[0] for name in figures if not name.startswith("token/")))
    rows = []
    for protocol in sorted(protocols, key=lambda name: name != "open"):
        row = [protocol]
        for what in ("connection", "request"):
            row += [cell(figures, f"{protocol}/{what}"), quotient(figures, f"{protocol}/{what}", f"open/{what}")]
        rows.append(row)
    listeners = markdown(["protocol", "connection, ms", "÷ open", "request, µs", "÷ open"], rows)
    kinds = children(figures, "token")
    if not kinds:
        return listeners
    refused = markdown(["refused token", "µs"], [[kind, cell(figures, f"token/{kind}")] for kind in kinds])
    return f"{listeners}\n\n{refused}"


def encryption(results: Results, parts: Parts) -> str:
    """Returns takeovers and broker failures by size and by protocol of the brokers' listeners."""
    figures = results.figures
    rows = []
    for size in sorted({int(name.split("/")[0]) for name in figures}):
        for protocol in (each for each in PROTOCOLS if each in children(figures, str(size))):
            row = [f"{size:,}", protocol]
            for name in ENCRYPTION_FIGURES:
                path = f"{size}/{protocol}/{name}"
                row += [cell(figures, path), quotient(figures, path, f"{size}/PLAINTEXT/{name}")]
            rows.append(row)
    titles = [title for name in ENCRYPTION_FIGURES for title in (f"{name}, ms", "÷ PLAINTEXT")]
    return markdown(["partitions", "protocol", *titles], rows)


def children(figures: Mapping[str, Figure], prefix: str) -> list[str]:
    """Returns the names directly below a path."""
    below = (name.removeprefix(f"{prefix}/") for name in figures if name.startswith(f"{prefix}/"))
    return list(dict.fromkeys(name.split("/", 1)[0] for name in below))


def sizes(figures: Mapping[str, Figure], prefix: str) -> list[int]:
    return sorted(int(name) for name in children(figures, prefix) if name.isdecimal())


def points(figures: Mapping[str, Figure], prefix: str, name: str) -> list[Point]:
    """Returns a curve over all sizes that have the figure with a value above zero."""
    by_size = ((size, figures.get(f"{prefix}/{size}/{name}")) for size in sizes(figures, prefix))
    return [Point(size, figure.spread) for size, figure in by_size if figure is not None and figure.spread.least > 0]


def cell(figures: Mapping[str, Figure], name: str) -> str:
    return runs(figures[name]) if name in figures else _MISSING


def cells(figures: Mapping[str, Figure], path: str, names: Iterable[str]) -> list[str]:
    """Returns the cells of several figures below a path."""
    return [cell(figures, f"{path}/{name}") for name in names]


def rows_of(
    figures: Mapping[str, Figure], labelled_paths: Iterable[tuple[str, str]], names: Sequence[str]
) -> list[list[str]]:
    """Returns a row for each path: its label, and the figures of these names below it."""
    return [[label, *cells(figures, path, names)] for label, path in labelled_paths]


def median(figures: Mapping[str, Figure], name: str) -> str:
    return tables.median(figures[name]) if name in figures else _MISSING


def quotient(figures: Mapping[str, Figure], above: str, below: str) -> str:
    if above not in figures or below not in figures:
        return _MISSING
    return times(ratio(figures[above].runs, figures[below].runs))


def _cluster(size: str) -> str:
    """Returns `30x100000` as "30 brokers, 100,000 partitions"."""
    brokers, _, partitions = size.partition("x")
    return f"{brokers} brokers, {int(partitions):,} partitions"


def settings_of(results: Iterable[Results]) -> list[list[str]]:
    """Returns the time and the settings of each benchmark."""
    return [
        [
            result.what,
            result.made,
            ", ".join(f"{name} {_plain(value)}" for name, value in result.settings.items() if value),
        ]
        for result in results
    ]


def _plain(value: Setting) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
