"""Events, page by page. The event stream is in `kactl.admin.event_stream`."""

from kactl.admin.past import read_time
from kactl.admin.problem import of_parameter
from kactl.admin.route import ApiRequest
from kactl.admin.schema import EventPage, EventQuery, NoData, event_view
from kactl.admin.service import Service


async def events(service: Service, request: ApiRequest[NoData, EventQuery, NoData]) -> EventPage:
    """Returns one page of events, oldest first."""
    history = service.controller.history
    after = history.oldest - 1 if request.query.after is None else request.query.after
    if request.query.since is not None:
        if request.query.after is not None:
            raise of_parameter("since", "cannot be combined with after: give one of the two")
        after = history.last_before(read_time(request.query.since, "since"))
    log_events, next_after = history.read(after, limit=request.query.limit, kinds=request.query.kinds)
    return EventPage(items=tuple(map(event_view, log_events)), next_after=next_after, as_of=service.as_of())
