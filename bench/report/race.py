"""The part of the page that sets Kafka's controller beside kactl."""

from collections.abc import Mapping
from typing import Final

from bench.figures import Figure, Results
from bench.goals import RACE, Wanted
from bench.spread import ratio
from bench.tables import markdown, runs, times

from .drawing import pairs
from .parts import Parts

STOCK: Final = "stock"
OURS: Final = "kactl"
# What is told of each size, in this order: phase, figure, and how it is called.
_TIMES: Final = (
    ("standby failover", "total", "standby failover, all brokers told"),
    ("standby failover", "isr", "· every replica knows its leader"),
    ("standby failover", "first request", "· first request to any broker"),
    ("cold start", "after election", "failover from a cold start"),
    ("warm failover", "total", "failover of one that held it before"),
    ("broker failure", "isr", "broker failure, new leaders known"),
    ("broker failure", "metadata", "· known to all brokers"),
    ("broker failure", "shrink", "· ISRs shrunk, all told"),
    ("broker return", "total", "broker return"),
    ("isr notification", "metadata", "ISR notification"),
    ("preferred election", "isr", "preferred election"),
    ("topic deletion", "total", "topic deletion, nothing left"),
    ("topic deletion", "stop", "· last replica told to delete"),
    ("takeover", "total", "takeover after SIGKILL, from the election"),
)
_COSTS: Final = (
    ("standby failover", "processor controller", "standby failover, processor of the controller, s"),
    ("standby failover", "processor ZooKeeper", "· of ZooKeeper, s"),
    ("standby failover", "ZooKeeper requests", "· requests to ZooKeeper"),
    ("broker failure", "processor controller", "broker failure, processor of the controller, s"),
    ("broker failure", "ZooKeeper requests", "· requests to ZooKeeper"),
    ("broker failure", "ZooKeeper transactions", "· transactions in ZooKeeper"),
    ("topic deletion", "processor controller", "topic deletion, processor of the controller, s"),
    ("topic deletion", "ZooKeeper transactions", "· transactions in ZooKeeper"),
    ("standby failover", "peak memory", "peak memory after the failover, MB"),
    ("topic deletion", "peak memory", "peak memory at the end, MB"),
)


def section(results: Results, parts: Parts) -> str:
    """All sizes, each with its table, its picture and what it cost."""
    sizes = list(dict.fromkeys(name.split("/", 1)[0] for name in results.figures))
    return "\n\n".join(_size(results, size, parts) for size in sizes)


def _size(results: Results, size: str, parts: Parts) -> str:
    brokers, _, partitions = size.partition("x")
    title = f"{brokers} brokers, {int(partitions):,} partitions"
    stock, ours = results.under(f"{size}/{STOCK}"), results.under(f"{size}/{OURS}")
    wanted = {each.path: each for each in RACE if each.size == size}
    said = [f"### {title}"]
    rows, drawn = [], []
    for phase, figure, label in _TIMES:
        path = f"{phase}/{figure}"
        if path not in stock and path not in ours:
            continue
        rows.append(_row(label, path, stock, ours, wanted))
        both = {name: side[path].spread for name, side in ((STOCK, stock), (OURS, ours)) if path in side}
        if all(each.least > 0 for each in both.values()):
            drawn.append((label.removeprefix("· "), both, rows[-1][3]))
    said.append(markdown(["seconds", "stock", "kactl", "stock ÷ kactl", "wanted"], rows))
    if drawn:
        said.append(parts.picture(f"race-{size}", f"Stock and kactl, {title}", pairs(title, drawn, x="seconds")))
    costs = [
        _row(label, f"{phase}/{figure}", stock, ours, wanted)
        for phase, figure, label in _COSTS
        if f"{phase}/{figure}" in stock or f"{phase}/{figure}" in ours
    ]
    if costs:
        said.append(markdown(["what it cost", "stock", "kactl", "stock ÷ kactl", "wanted"], costs))
    return "\n\n".join(said)


def _row(
    label: str, path: str, stock: Mapping[str, Figure], ours: Mapping[str, Figure], wanted: Mapping[str, Wanted]
) -> list[str]:
    cells = [runs(side[path]) if path in side else "–" for side in (stock, ours)]
    found, bound = "–", ""
    if path in stock and path in ours and min(ours[path].runs) > 0:
        value = ratio(stock[path].runs, ours[path].runs)
        found = times(value)
        if path in wanted:
            reached = value.value >= wanted[path].at_least
            bound = f"≥ {wanted[path].at_least:g}" + ("" if reached else ", not reached")
    return [label, *cells, found, bound]
