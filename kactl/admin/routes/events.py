"""Events, page by page. The event stream is in `kactl.admin.event_stream`."""

from kactl.admin.event_views import event_view
from kactl.admin.route import ApiRequest
from kactl.admin.schema import EventPage, EventQuery, NoData
from kactl.admin.service import Service


async def events(service: Service, request: ApiRequest[NoData, EventQuery, NoData]) -> EventPage:
    """Returns one page of events, oldest first."""
    history = service.controller.history
    after = history.oldest - 1 if request.query.after is None else request.query.after
    log_events, next_after = history.read(after, limit=request.query.limit, kinds=request.query.kinds)
    return EventPage(items=tuple(map(event_view, log_events)), next_after=next_after, as_of=service.as_of())
