"""Picture of an incident: unavailability over time, controllers, absent brokers, and the most affected partitions, with
certain and uncertain parts of their outages.

Solid parts are stated by lines. Striped parts are inferred from other lines, or only bounded by the lines around them;
a thin line extends to the bounds.
"""

from collections.abc import Sequence
from typing import Final

from . import timeline_course, timeline_lanes
from .findings import Absence, Controllership
from .model import Incident
from .svg import width
from .timeline_frame import LEFT, RIGHT, Frame
from .wording import Moments

_LEGEND: Final = {
    "seen": "observed",
    "inferred": "inferred from other lines",
    "bounded": "only bounded",
    "away": "broker gone",
    "stopped": "broker shut down in order",
}
_STRIPED: Final = ("inferred", "bounded")


def timeline(
    incident: Incident, *, absences: Sequence[Absence], controllers: Sequence[Controllership], moments: Moments
) -> str:
    """Returns the picture of an incident that is shown in full."""
    frame = Frame(incident, moments)
    away = [each for each in absences if frame.axis.overlaps(*timeline_lanes.away(each))]
    acting = [each for each in controllers if frame.axis.overlaps(*timeline_lanes.acted(each))]
    series = incident.series
    frame.scale(
        (timeline_course.high(series) if series is not None else 0)
        + timeline_lanes.controllers_high(acting)
        + timeline_lanes.brokers_high(away)
        + timeline_lanes.partitions_high(incident)
    )
    if series is not None:
        timeline_course.course(frame, series)
    timeline_lanes.controllers(frame, acting)
    timeline_lanes.brokers(frame, away)
    timeline_lanes.partitions(frame, incident)
    return frame.pic.finished(_legend(frame))


def _legend(frame: Frame) -> float:
    """Draw the legend below all rows, and return the bottom of the picture."""
    x, y = LEFT, frame.y + 8
    for kind, text in _LEGEND.items():
        if x + 24 + width(text, 11) > RIGHT:
            x, y = LEFT, y + 18
        if kind in _STRIPED:
            frame.pic.hatched(x, y, 18, 10, kind)
        else:
            frame.pic.rect(x, y, 18, 10, kind)
        frame.pic.text(x + 24, y + 9, text, "faint")
        x += 24 + width(text, 11) + 18
    return y + 18
