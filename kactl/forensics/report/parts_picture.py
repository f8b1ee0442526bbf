"""Picture of the parts of an incident's outages: one bar for each band of lengths, the shortest first."""

from collections.abc import Sequence
from typing import Final

from .model import Band
from .svg import Drawing, fitted, width
from .wording import count, duration, share

WIDTH: Final = 1000.0
LEFT: Final = 200.0
RIGHT: Final = 860.0
_ROW: Final = 34.0
_BAR: Final = 20.0
# Parts in their order, and their descriptions.
PARTS: Final = {
    "detection": "until the controller took note",
    "queue": "until it began with it",
    "waiting": "until anybody could be elected",
    "election": "until a leader was elected and stored",
    "send": "until the new leader was told",
    "apply": "until it had taken its role",
    "unknown": "cannot be told from these logs",
}


def parts(number: int, bands: Sequence[Band]) -> str:
    """Returns the picture of the incident of this number."""
    pic = Drawing(f"p{number}", width=WIDTH, label=f"Incident {number}: where the time of its outages went")
    y = 8.0
    for band in bands:
        pic.text(LEFT - 10, y + 14, fitted(f"{band.name} ({band.outages:,})", LEFT - 16), anchor="end")
        _bar(pic, band, y)
        pic.text(RIGHT + 12, y + 14, f"mean {duration(band.mean_ms)}", "faint")
        y += _ROW
    return pic.finished(_legend(pic, y, bands))


def _bar(pic: Drawing, band: Band, y: float) -> None:
    total = sum(_ms(band, name) for name in PARTS)
    if total <= 0:
        pic.line(LEFT, y + _BAR / 2, RIGHT, y + _BAR / 2, "lane")
        return
    x = LEFT
    for name, what in PARTS.items():
        wide = _ms(band, name) / total * (RIGHT - LEFT)
        if wide <= 0:
            continue
        of = share(_ms(band, name), total)
        tip = (
            f"{name}, {what}: {duration(_ms(band, name))} on average, {of} of the time of "
            f"{count(band.outages, 'outage')}"
        )
        pic.rect(x, y, wide, _BAR, f"part-{name}", tip=tip)
        text = next((each for each in (f"{name} {of}", of) if width(each) <= wide - 8), "")
        if text:
            pic.text(x + wide / 2, y + 14, text, f"on-{name}", anchor="middle")
        x += wide


def _legend(pic: Drawing, y: float, bands: Sequence[Band]) -> float:
    x = LEFT
    for name, what in PARTS.items():
        if not any(_ms(band, name) for band in bands):
            continue
        text = f"{name}: {what}"
        if x + 20 + width(text, 11) > WIDTH - 8 and x > LEFT:
            x, y = LEFT, y + 18
        pic.rect(x, y, 12, 10, f"part-{name}")
        pic.text(x + 18, y + 9, text, "faint")
        x += 18 + width(text, 11) + 18
    return y + 18


def _ms(band: Band, name: str) -> float:
    found: float = getattr(band, f"{name}_ms")
    return found
