"""Formatting of figures and tables: three significant digits, separated thousands, aligned columns."""

from collections.abc import Sequence

from .figures import Figure
from .spread import Ratio


def number(value: float) -> str:
    """Returns three significant digits without an exponent: `0.0123`, `4.56`, `1,230`."""
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 1:
        return f"{value:.2f}"
    return f"{value:.3g}" if size >= 0.001 or not size else f"{value:.1g}"


def times(ratio: Ratio) -> str:
    """Returns a ratio and its spread: `12.3 (11.9-12.8)`."""
    return f"{number(ratio.value)} ({number(ratio.least)}-{number(ratio.greatest)})"


def runs(figure: Figure) -> str:
    """Returns the median with the smallest and largest run: `41.0 (39.5-44.2)`; one value if all are equal."""
    found = figure.spread
    if found.least == found.greatest:
        return _one(figure, found.median)
    return f"{_one(figure, found.median)} ({_one(figure, found.least)}-{_one(figure, found.greatest)})"


def median(figure: Figure) -> str:
    return _one(figure, figure.median)


def _one(figure: Figure, value: float) -> str:
    # Counts have no fractions, unless the value is the median of two.
    return f"{value:,.0f}" if figure.unit == "count" and value == int(value) else number(value)


def plain(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table for a terminal: first column left-aligned, others right-aligned. Empty rows separate groups."""
    filled = [row for row in (head, *rows) if row]
    widths = [max((len(row[at]) for row in filled if at < len(row)), default=0) for at in range(len(head))]
    lines = []
    for row in (head, *rows):
        cells = (
            text.ljust(width) if not at else text.rjust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=False))
        )
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns the table in Markdown."""
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


def listed(figures: dict[str, Figure]) -> str:
    """Returns a table of all figures: unit, median, smallest and largest run, quartiles, and number of runs."""
    rows = []
    for name, figure in figures.items():
        found = figure.spread
        values = (found.median, found.least, found.greatest, found.low, found.high)
        median, least, greatest, low, high = (number(value) for value in values)
        rows.append([name, figure.unit, median, f"{least}-{greatest}", f"{low}-{high}", str(found.count)])
    return plain(["", "unit", "median", "min-max", "half within", "runs"], rows)
