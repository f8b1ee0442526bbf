"""Safety invariants, checked at the transitions that can break them. None of this calls the code that it judges."""

from typing import NamedTuple

from .assignments import Assignments
from .components import LEADER, NONE, Broker, Controller, Message, Proposal, Step, Store, bit, members
from .tables import Decision

# The step of an election that an operator has requested.
UNCLEAN = Step("elect", 0, (1,))


class Found(NamedTuple):
    """A violation."""

    invariant: str
    text: str


def on_write(
    store: Store,
    written: Store,
    controller: Controller,
    plan: Decision,
    step: Step,
    assignments: Assignments,
    *,
    allowed: bool,
) -> Found | None:
    """Check a write of the leadership, by the controller as it was when the write was planned."""
    if controller.epoch != store.epoch:
        return Found("INV-03", f"written under epoch {controller.epoch}, the stored one is {store.epoch}")
    if store.version != controller.version:
        return Found("INV-07", f"version {store.version} is overwritten by a writer that knows {controller.version}")
    return (
        _isr(written)
        or _epochs(store, written)
        or _election(store, written, controller, plan, step, allowed=allowed)
        or _recovery(store, written, plan, step)
        or _removal(store, written, step, controller, assignments)
    )


def _isr(written: Store) -> Found | None:
    if not written.isr:
        return Found("INV-17", "the ISR is empty")
    if written.leader != NONE and not written.isr & bit(written.leader):
        return Found("INV-15", f"leader {written.leader} is not in the ISR {members(written.isr)}")
    return None


def _epochs(store: Store, written: Store) -> Found | None:
    if written.leader_epoch < store.leader_epoch:
        return Found("INV-18", f"leader epoch {written.leader_epoch} after {store.leader_epoch}")
    if written.leader != store.leader and written.leader_epoch == store.leader_epoch:
        return Found("INV-18", f"leader {written.leader} after {store.leader} under the same leader epoch")
    return None


def _election(
    store: Store, written: Store, controller: Controller, plan: Decision, step: Step, *, allowed: bool
) -> Found | None:
    leader = written.leader
    if leader in (store.leader, NONE):
        return None
    live = [
        broker for broker in members(store.isr) if controller.known[broker] and not controller.shutting >> broker & 1
    ]
    if not controller.known[leader]:
        return Found("INV-22", f"{leader} is elected and is not registered")
    if controller.shutting >> leader & 1 and live:
        return Found("INV-22", f"{leader} is elected while it shuts down, and {live} could lead")
    if not store.isr & bit(leader):
        if not plan.unclean:
            return Found("INV-20", f"{leader} is elected from outside of the ISR {members(store.isr)}")
        if live:
            return Found("INV-20", f"an unclean election of {leader}, although {live} are live and in sync")
        if not allowed and step != UNCLEAN:
            return Found("INV-20", f"an unclean election of {leader} that nothing allows")
    return None


def _recovery(store: Store, written: Store, plan: Decision, step: Step) -> Found | None:
    if plan.unclean:
        if not written.recovering or written.isr != bit(written.leader):
            return Found("INV-21", "an unclean election without recovery, or with more than the leader in sync")
    elif written.recovering and not store.recovering:
        return Found("INV-21", "the leader recovers without an unclean election")
    elif written.recovering and written.isr & ~store.isr:
        return Found("INV-21", "the ISR grows while the leader recovers")
    elif store.recovering and not written.recovering and step.kind != "accept":
        return Found("INV-21", "the recovery is ended, and not by the leader")
    return None


def _removal(
    store: Store, written: Store, step: Step, controller: Controller, assignments: Assignments
) -> Found | None:
    if step.kind not in ("offline", "further") or step.value != (1,):
        return None
    # In memory the target is in force already; the stored assignment still has the replicas of the origin.
    masks = assignments.masks[store.assignment]
    removed = store.isr & ~written.isr & masks.removing
    missing = masks.target & ~written.isr
    if removed and missing:
        return Found("INV-45", f"{members(removed)} leave the ISR before {members(missing)} of the target are in it")
    return None


def on_assignment(
    store: Store, controller: Controller, number: int, assignments: Assignments, *, ends: bool
) -> Found | None:
    """Check a write of the assignment."""
    if controller.epoch != store.epoch:
        return Found("INV-03", f"written under epoch {controller.epoch}, the stored one is {store.epoch}")
    masks = assignments.masks[number]
    removed = assignments.masks[store.assignment].replicas & ~masks.replicas
    if ends and removed and masks.replicas & ~store.isr:
        missing = members(masks.replicas & ~store.isr)
        return Found("INV-45", f"{members(removed)} are removed while {missing} of the target are not in sync")
    if ends and removed & store.isr:
        return Found("INV-16", f"{members(removed & store.isr)} are removed while they are in the ISR")
    return None


def on_accept(
    controller: Controller, broker: int, proposal: Proposal, error: str, assignments: Assignments
) -> Found | None:
    """Check the decision on a proposal against one that is made here, from the rules."""
    expected = _expected(controller, broker, proposal, assignments)
    if error != expected:
        rule = "INV-23" if expected == "INELIGIBLE_REPLICA" else "INV-24"
        return Found(rule, f"the proposal of {broker} is answered with {error}, and not with {expected}")
    return None


def _expected(controller: Controller, broker: int, proposal: Proposal, assignments: Assignments) -> str:
    if proposal.leader_epoch > controller.leader_epoch or proposal.version > controller.version:
        return "NOT_CONTROLLER"
    if proposal.leader_epoch < controller.leader_epoch:
        return "FENCED_LEADER_EPOCH"
    is_leader = controller.leader == broker
    if is_leader and proposal.isr == controller.isr and not controller.recovering:
        return "same"
    if proposal.version < controller.version:
        return "INVALID_UPDATE_VERSION"
    if not is_leader or not proposal.isr & bit(broker):
        return "INVALID_REQUEST"
    if proposal.isr & ~(assignments.masks[controller.assignment].replicas | controller.isr):
        return "INELIGIBLE_REPLICA"
    for member in members(proposal.isr):
        leaves = (controller.shutting & ~controller.isr) >> member & 1  # a member of the ISR may stay in it
        if controller.known[member] != proposal.incarnations[member] or leaves:
            return "INELIGIBLE_REPLICA"
    return "taken"


def on_apply(number: int, before: Broker, epoch: int, message: Message, after: Broker) -> Found | None:
    """Check a request that a broker has accepted."""
    if message.incarnation != before.incarnation:
        return Found(
            "INV-49", f"broker {number}, incarnation {before.incarnation}, accepts a request for {message.incarnation}"
        )
    if epoch < before.seen:
        return Found("INV-06", f"broker {number} accepts controller epoch {epoch} after {before.seen}")
    started = (after.role, after.leader_epoch) != (before.role, before.leader_epoch)
    # A later controller may start it under the epoch under which it was stopped: that is no delayed request.
    later = epoch > before.stopper and after.leader_epoch == before.stopped
    if message.kind == 0 and started and after.leader_epoch <= before.stopped and not later:
        return Found(
            "INV-44",
            f"broker {number} was stopped under leader epoch {before.stopped} and starts under {after.leader_epoch}",
        )
    if message.kind != 0 and after.role != before.role and message.leader_epoch < before.leader_epoch:
        return Found(
            "INV-44",
            f"broker {number} stops under leader epoch {message.leader_epoch} what it started under "
            f"{before.leader_epoch}",
        )
    return None


def one_leader(store: Store, number: int, broker: Broker) -> Found | None:
    """Check the leader epoch of a leader."""
    if broker.role != LEADER:
        return None
    if broker.leader_epoch > store.leader_epoch:
        return Found("INV-19", f"broker {number} leads under {broker.leader_epoch}, which is not stored")
    if broker.leader_epoch == store.leader_epoch and store.leader != number:
        return Found(
            "INV-19", f"broker {number} leads under {broker.leader_epoch}; {store.leader} is the stored leader"
        )
    return None


def on_memory(store: Store, controller: Controller) -> Found | None:
    """Check the memory of the active controller."""
    if controller.epoch != store.epoch:
        return None
    if controller.version > store.version:
        return Found("INV-09", f"version {controller.version} in memory, {store.version} in the store")
    if controller.version == store.version:
        memory = controller.leader, controller.isr, controller.leader_epoch, controller.recovering
        stored = store.leader, store.isr, store.leader_epoch, store.recovering
        if memory != stored:
            return Found("INV-09", f"{memory} in memory, {stored} in the store")
    return None
