"""The controllership: what waits for this instance, who had it before, and giving it up."""

from kactl.actors.event_stats import Kind, QueueView, Waiting
from kactl.admin.audit import audited
from kactl.admin.route import Asked
from kactl.admin.schema import (
    CurrentEvent,
    EventTally,
    NoQuestion,
    QueueInfo,
    QueueQuery,
    Resignation,
    Resigned,
    TermInfo,
    TermList,
    Took,
    WaitingEvent,
)
from kactl.admin.service import Service
from kactl.errors import NotController
from kactl.telemetry.durations import Summary


async def history(service: Service, asked: Asked[NoQuestion, NoQuestion, NoQuestion]) -> TermList:
    """Every change of controller that this instance has seen."""
    terms = service.controller.controllerships()
    return TermList(
        items=tuple(
            TermInfo(
                epoch=each.epoch,
                controller_id=each.controller_id,
                began_ms=each.began_ms,
                ended_ms=each.ended_ms,
                cause=each.cause,
                ours=each.ours,
            )
            for each in terms
        ),
        as_of=service.as_of(),
    )


async def queue(service: Service, asked: Asked[NoQuestion, QueueQuery, NoQuestion]) -> QueueInfo:
    """What waits, what is in hand, and how long each kind of event has taken."""
    view: QueueView = service.controller.queue(limit=asked.query.limit)
    in_hand = view.current
    return QueueInfo(
        depth=view.depth,
        oldest_ms=view.oldest_ms,
        refused=view.refused,
        current=None
        if in_hand is None
        else CurrentEvent(
            label=in_hand.label,
            state=in_hand.state,
            since_ms=in_hand.since_ms,
            for_ms=in_hand.for_ms,
            between=in_hand.between,
        ),
        next=tuple(map(_waiting, view.next)),
        kinds=tuple(map(_tally, view.kinds)),
        wait=_took(view.wait),
        as_of=service.as_of(),
    )


async def resign(service: Service, asked: Asked[NoQuestion, NoQuestion, Resignation]) -> Resigned:
    """Give it up, if it is ours under the epoch that was named."""
    controller = service.controller
    if not controller.is_active:
        raise NotController(controller.loop.active_id)
    epoch = asked.body.expected_epoch
    async with audited(service, "resign", f"epoch {epoch}", reason=asked.body.reason):
        await controller.resign(expected_epoch=epoch)
    return Resigned(epoch=epoch, active_id=controller.loop.active_id)


def _waiting(each: Waiting) -> WaitingEvent:
    return WaitingEvent(label=each.label, waited_ms=each.waited_ms, asked=each.asked)


def _tally(each: Kind) -> EventTally:
    return EventTally(
        label=each.label,
        handled=each.handled,
        failed=each.failed,
        preempted=each.preempted,
        wait=_took(each.wait),
        process=_took(each.process),
    )


def _took(summary: Summary) -> Took:
    return Took(
        count=summary.count,
        mean_ms=summary.total_ms / summary.count if summary.count else 0.0,
        p50_ms=summary.p50_ms,
        p99_ms=summary.p99_ms,
        max_ms=summary.max_ms,
    )
