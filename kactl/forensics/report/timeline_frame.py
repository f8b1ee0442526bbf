"""The frame of an incident's picture: its axis of time, the names on its left, and how far down it is drawn."""

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
LEAST: Final = 2.0  # pixels of a bar, so that the shortest outage is seen
_ROOM: Final = LEFT - 16


class Frame:
    """A picture whose rows are drawn from the top to the bottom.

    Attributes:
        y: where the next row begins; whoever draws one moves it on.
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
        """The marks of the axis, behind all rows: how high they are together has to be known before."""
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
        """What a row is, left of it."""
        shown = fitted_name(text, _ROOM)
        self.pic.text(LEFT - 10, y, shown, kind, anchor="end", tip=tip or (text if shown != text else ""))

    def lane(self, y: float) -> None:
        """A thin line on which bars lie."""
        self.pic.line(LEFT, y, RIGHT, y, "lane")

    def diamond(self, x: float, y: float, kind: str, tip: str) -> None:
        """A mark of one moment, around a place."""
        self.pic.path([(x, y - 6), (x + 6, y), (x, y + 6), (x - 6, y)], kind, tip=tip)


def _fits(x: float, text: str) -> bool:
    """Whether a text around a place stays right of the names, and on the picture."""
    half = width(text, 11) / 2
    return x - half >= LEFT - 6 and x + half <= WIDTH
