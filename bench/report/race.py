"""Section of the page that compares Kafka's controller with kactl."""

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
# Rows of each size: phase, figure, label.
_TIMES: Final = (
    ("standby failover", "total", "standby failover, all brokers informed"),
    ("standby failover", "isr", "· every replica has its leader"),
    ("standby failover", "first request", "· first request to any broker"),
    ("cold start", "after election", "failover from a cold start"),
    ("warm failover", "total", "failover to an earlier controller"),
    ("broker failure", "isr", "broker failure, new leaders informed"),
    ("broker failure", "metadata", "· all brokers informed"),
    ("broker failure", "shrink", "· ISRs shrunk, all informed"),
    ("broker return", "total", "broker return"),
    ("isr notification", "metadata", "ISR notification"),
    ("preferred election", "isr", "preferred election"),
    ("topic deletion", "total", "topic deletion, complete"),
    ("topic deletion", "stop", "· last delete request"),
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
    """Returns a table, a picture and a table of costs for each size."""
    sizes = list(dict.fromkeys(name.split("/", 1)[0] for name in results.figures))
    return "\n\n".join(_size(results, size, parts) for size in sizes)


def _size(results: Results, size: str, parts: Parts) -> str:
    brokers, _, partitions = size.partition("x")
    title = f"{brokers} brokers, {int(partitions):,} partitions"
    stock, ours = results.under(f"{size}/{STOCK}"), results.under(f"{size}/{OURS}")
    goals = {goal.path: goal for goal in RACE if goal.size == size}
    texts = [f"### {title}"]
    rows, drawn = [], []
    for phase, figure, label in _TIMES:
        path = f"{phase}/{figure}"
        if path not in stock and path not in ours:
            continue
        rows.append(_row(label, path, stock, ours, goals))
        spreads = {name: side[path].spread for name, side in ((STOCK, stock), (OURS, ours)) if path in side}
        if all(spread.least > 0 for spread in spreads.values()):
            drawn.append((label.removeprefix("· "), spreads, rows[-1][3]))
    texts.append(markdown(["seconds", "stock", "kactl", "stock ÷ kactl", "goal"], rows))
    if drawn:
        texts.append(parts.picture(f"race-{size}", f"Stock and kactl, {title}", pairs(title, drawn, x="seconds")))
    costs = [
        _row(label, f"{phase}/{figure}", stock, ours, goals)
        for phase, figure, label in _COSTS
        if f"{phase}/{figure}" in stock or f"{phase}/{figure}" in ours
    ]
    if costs:
        texts.append(markdown(["cost", "stock", "kactl", "stock ÷ kactl", "goal"], costs))
    return "\n\n".join(texts)


def _row(
    label: str, path: str, stock: Mapping[str, Figure], ours: Mapping[str, Figure], goals: Mapping[str, Wanted]
) -> list[str]:
    cells = [runs(side[path]) if path in side else "–" for side in (stock, ours)]
    quotient, bound = "–", ""
    if path in stock and path in ours and min(ours[path].runs) > 0:
        value = ratio(stock[path].runs, ours[path].runs)
        quotient = times(value)
        if path in goals:
            reached = value.value >= goals[path].at_least
            bound = f"≥ {goals[path].at_least:g}" + ("" if reached else ", not reached")
    return [label, *cells, quotient, bound]
