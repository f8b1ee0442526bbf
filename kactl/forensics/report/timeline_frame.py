"""Frame of an incident's picture: time axis, row names, and the current vertical position."""

import datetime
from typing import Final

from .axis import Axis
from .model import Incident
from .svg import Drawing, fitted, fitted_name, width
from .wording import Moments

WIDTH: Final = 1000.0
LEFT: Final = 200.0
RIGHT: Final = 984.0
LANE: Final = 22.0
LEAST: Final = 2.0  # minimum pixels of a bar, so that the shortest outage is visible
_ROOM: Final = LEFT - 16


class Frame:
    """A picture whose rows are drawn from top to bottom.

    Attributes:
        y: top of the next row; each row advances it.
    """

    def __init__(self, incident: Incident, moments: Moments) -> None:
        pad = max((incident.end - incident.begin) * 0.04, datetime.timedelta(milliseconds=20))
        label = (
            f"Incident {incident.number}: what was unavailable when, {moments.stretch(incident.begin, incident.end)}"
        )
        self.moments = moments
        self.axis = Axis(incident.begin - pad, incident.end + pad, left=LEFT, right=RIGHT)
        self.pic = Drawing(f"t{incident.number}", width=WIDTH, label=label)
        self.y = 40.0

    def scale(self, high: float) -> None:
        """Draw the marks of the axis behind all rows; their total height must be known before."""
        for place, mark in enumerate(self.axis.marks(self.moments)):
            self.pic.line(mark.x, 34, mark.x, self.y + high, "grid")
            if not place:
                self.pic.text(LEFT - 10, 13, mark.day, "faint", anchor="end")
            elif mark.day and _fits(mark.x, mark.day):
                self.pic.text(mark.x, 13, mark.day, "faint", anchor="middle")
            if _fits(mark.x, mark.time):
                self.pic.text(mark.x, 28, mark.time, "faint", anchor="middle")
        self.pic.text(LEFT - 10, 28, fitted(self.moments.name, _ROOM, 11), "faint", anchor="end")

    def name(self, y: float, text: str, *, kind: str = "", tip: str = "") -> None:
        """Draw the name of a row, left of it."""
        shown = fitted_name(text, _ROOM)
        self.pic.text(LEFT - 10, y, shown, kind, anchor="end", tip=tip or (text if shown != text else ""))

    def lane(self, y: float) -> None:
        """Draw the thin line below bars."""
        self.pic.line(LEFT, y, RIGHT, y, "lane")

    def diamond(self, x: float, y: float, kind: str, tip: str) -> None:
        """Draw a mark of one point in time."""
        self.pic.path([(x, y - 6), (x + 6, y), (x, y + 6), (x - 6, y)], kind, tip=tip)


def _fits(x: float, text: str) -> bool:
    """True if a centred text stays right of the names, and on the picture."""
    half = width(text, 11) / 2
    return x - half >= LEFT - 6 and x + half <= WIDTH
