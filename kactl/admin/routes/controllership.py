"""The controller's role: event queue, previous controllers, and resignation."""

from kactl.actors.queries import QueuedEvent, QueueView
from kactl.admin.audit import audited
from kactl.admin.client import caller
from kactl.admin.route import ApiRequest
from kactl.admin.schema import (
    CurrentEvent,
    EventTally,
    NoData,
    QueueInfo,
    QueueQuery,
    Release,
    Released,
    Resignation,
    Resigned,
    TermInfo,
    TermList,
    Took,
    WaitingEvent,
)
from kactl.admin.service import Service
from kactl.decide.messages.admin import ReleaseController
from kactl.model.errors import BadRequest, NotController, StaleEpoch
from kactl.telemetry.event_records import Kind, Summary


async def history(service: Service, request: ApiRequest[NoData, NoData, NoData]) -> TermList:
    """Returns every change of controller that this instance has observed."""
    terms = service.controller.controllerships()
    return TermList(
        items=tuple(
            TermInfo(
                epoch=term.epoch,
                controller_id=term.controller_id,
                began_ms=term.began_ms,
                ended_ms=term.ended_ms,
                cause=term.cause,
                ours=term.ours,
            )
            for term in terms
        ),
        as_of=service.as_of(),
    )


async def queue(service: Service, request: ApiRequest[NoData, QueueQuery, NoData]) -> QueueInfo:
    """Returns the waiting events, the current one, and how long each kind of event has taken."""
    view: QueueView = service.controller.queue(limit=request.query.limit)
    current = view.current
    return QueueInfo(
        depth=view.depth,
        oldest_ms=view.oldest_ms,
        refused=view.refused,
        current=None
        if current is None
        else CurrentEvent(
            label=current.label,
            state=current.state,
            since_ms=current.since_ms,
            for_ms=current.for_ms,
            between=current.between,
        ),
        next=tuple(map(_waiting, view.next)),
        kinds=tuple(map(_tally, view.kinds)),
        wait=_took(view.wait),
        as_of=service.as_of(),
    )


async def resign(service: Service, request: ApiRequest[NoData, NoData, Resignation]) -> Resigned:
    """Resign, if this instance is the controller under the given epoch."""
    controller = service.controller
    if not controller.is_active:
        raise NotController(controller.loop.active_id)
    epoch, body = request.body.expected_epoch, request.body
    if body.until_ms is not None and not body.hold:
        raise BadRequest("until_ms", "is the end of a hold: set hold as well")
    async with audited(service, "resign", f"epoch {epoch}", reason=body.reason, dry_run=body.dry_run) as audit:
        if body.hold:
            audit.detail = "held" if body.until_ms is None else f"held until {body.until_ms}"
        if not body.dry_run:
            await controller.resign(
                expected_epoch=epoch, hold=body.hold, until_ms=body.until_ms, by=caller(), reason=body.reason
            )
        elif epoch != controller.cluster.fence.epoch:
            raise StaleEpoch("expected_epoch", expected=epoch, present=controller.cluster.fence.epoch)
        else:
            controller.loop.controllership.check_until(body.until_ms)
    return Resigned(epoch=epoch, active_id=controller.loop.active_id)


async def release(service: Service, request: ApiRequest[NoData, NoData, Release]) -> Released:
    """End the hold of an instance."""
    id_, dry_run = request.body.controller_id, request.body.dry_run
    async with audited(service, "release instance", id_, reason=request.body.reason, dry_run=dry_run) as audit:
        changed = await service.controller.ask(ReleaseController(id_, dry_run=dry_run))
        if not changed:
            audit.detail = "it was not held"
    return Released(controller_id=id_, changed=changed, dry_run=dry_run)


def _waiting(event: QueuedEvent) -> WaitingEvent:
    return WaitingEvent(label=event.label, waited_ms=event.waited_ms, asked=event.asked)


def _tally(kind: Kind) -> EventTally:
    return EventTally(
        label=kind.label,
        handled=kind.handled,
        failed=kind.failed,
        preempted=kind.preempted,
        wait=_took(kind.wait),
        process=_took(kind.process),
    )


def _took(summary: Summary) -> Took:
    return Took(
        count=summary.count,
        mean_ms=summary.total_ms / summary.count if summary.count else 0.0,
        p50_ms=summary.p50_ms,
        p99_ms=summary.p99_ms,
        max_ms=summary.max_ms,
    )
