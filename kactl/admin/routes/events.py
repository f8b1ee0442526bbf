"""What happened, page by page. The stream of it stands in `kactl.admin.stream`."""

from kactl.admin.event_views import event_view
from kactl.admin.route import Asked
from kactl.admin.schema import EventPage, EventQuery, NoQuestion
from kactl.admin.service import Service


async def events(service: Service, asked: Asked[NoQuestion, EventQuery, NoQuestion]) -> EventPage:
    """Some events, oldest first."""
    history = service.controller.history
    after = history.oldest - 1 if asked.query.after is None else asked.query.after
    found, behind = history.read(after, limit=asked.query.limit, kinds=asked.query.kinds)
    return EventPage(items=tuple(map(event_view, found)), next_after=behind, as_of=service.as_of())
