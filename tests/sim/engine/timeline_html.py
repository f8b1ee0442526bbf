"""Timeline as one HTML file without external resources: nodes as columns, requests as arrows between them."""

import html
from collections.abc import Iterator, Sequence
from typing import Final

from tests.sim.engine.timeline import Link, Row, columns

_ROW_PX: Final = 20
_TIME_PX: Final = 90
_COLUMN_PX: Final = 240
_CLASS: Final = {"violation": "violation", "log": "log", "role": "role"}
_STYLE: Final = """
body { font: 13px/20px ui-monospace, monospace; margin: 16px; color: #111; background: #fff; }
h1 { font-size: 16px; } pre { background: #f4f4f4; padding: 8px; overflow-x: auto; }
.chart { position: relative; }
.chart svg { position: absolute; left: 0; top: 0; pointer-events: none; }
.cell, .time, .head { position: absolute; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.head { font-weight: bold; } .time { color: #666; width: 80px; text-align: right; }
.cell { width: 225px; padding-left: 6px; border-left: 2px solid #ddd; }
.cell:hover { overflow: visible; background: #ffc; z-index: 2; }
.cell.log { color: #666; } .cell.fault { color: #a50; }
.cell.violation { color: #fff; background: #b00; overflow: visible; z-index: 1; }
b { color: #00a; } b.DEAD, b.ZOMBIE { color: #b00; } b.PAUSED { color: #a50; }
line { stroke: #888; } line.rejected { stroke: #b00; } line.lost { stroke: #b00; stroke-dasharray: 3 3; }
@media (prefers-color-scheme: dark) { body { color: #eee; background: #111; } pre { background: #222; }
.cell { border-color: #333; } .cell:hover { background: #330; } b { color: #8af; } }
"""


def page(title: str, report: Sequence[str], shown: Sequence[Row], links: Sequence[Link]) -> str:
    """Returns a complete page.

    Args:
        report: lines above the chart.
        links: requests; those whose ends are not among the rows are left out.
    """
    nodes = columns(shown)
    left_px = {node: _TIME_PX + index * _COLUMN_PX for index, node in enumerate(nodes)}
    height_px = (len(shown) + 1) * _ROW_PX
    width_px = _TIME_PX + len(nodes) * _COLUMN_PX
    body = [
        f"<h1>{html.escape(title)}</h1>",
        f"<pre>{html.escape(chr(10).join(report))}</pre>",
        f'<div class="chart" style="width: {width_px}px; height: {height_px}px">',
        f'<svg width="{width_px}" height="{height_px}">',
        *_lines(shown, links, left_px),
        "</svg>",
        *(f'<div class="head" style="left: {left_px[node]}px; top: 0">{html.escape(node)}</div>' for node in nodes),
        *_cells(shown, left_px),
        "</div>",
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body>\n{chr(10).join(body)}\n</body></html>\n"
    )


def _cells(shown: Sequence[Row], left_px: dict[str, int]) -> Iterator[str]:
    last_ms = -1.0
    for index, row in enumerate(shown):
        top_px = (index + 1) * _ROW_PX
        if row.time_ms != last_ms:
            yield f'<div class="time" style="top: {top_px}px">{row.time_ms / 1000:.3f}</div>'
            last_ms = row.time_ms
        style = f"left: {left_px[row.node]}px; top: {top_px}px"
        kind = "fault" if row.kind.startswith("fault.") else _CLASS.get(row.kind, "event")
        role = f'<b class="{html.escape(row.role)}">{html.escape(row.role)}</b> ' if row.role else ""
        said = html.escape(row.text)
        yield f'<div class="cell {kind}" style="{style}" title="{said}">{role}{said}</div>'


def _lines(shown: Sequence[Row], links: Sequence[Link], left_px: dict[str, int]) -> Iterator[str]:
    """Yields an arrow from the row at which each request was sent to the one at which it was received."""
    sent = _positions(shown, ("req.send",))
    received = _positions(shown, ("req.accept", "req.reject"))
    for link in links:
        begin = sent.get((link.sender, link.sent_ms))
        end = received.get((link.receiver, link.received_ms)) if link.outcome != "lost" else begin
        if begin is None or end is None or link.receiver not in left_px:
            continue
        yield (
            f'<line class="{link.outcome}" x1="{left_px[link.sender] + 3}" y1="{(begin + 1.5) * _ROW_PX}" '
            f'x2="{left_px[link.receiver]}" y2="{(end + 1.5) * _ROW_PX}"><title>{html.escape(link.what)}</title></line>'
        )


def _positions(shown: Sequence[Row], kinds: tuple[str, ...]) -> dict[tuple[str, float], int]:
    return {(row.node, row.time_ms): index for index, row in enumerate(shown) if row.kind in kinds}
