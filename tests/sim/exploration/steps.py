"""Steps of a controller's events: the write of each, its consequences, and the messages.

See `controllers` for the names of the steps. A step that writes is planned by `_plan`; `_applied` continues after its
commit, and `_run` carries out all steps up to the next one that writes.
"""

from collections.abc import Callable
from typing import NamedTuple

from kactl.decide.machines.election import Election

from .assignments import Assignments
from .components import (
    BROKERS,
    DELETE,
    LEAD,
    NONE,
    R_ABSENT,
    R_NEW,
    R_OFFLINE,
    R_ONLINE,
    STOP,
    Batch,
    Controller,
    Message,
    Step,
    Store,
    bit,
    members,
)
from .invariants import Found
from .mutants import Mutant
from .tables import Decision, Tables

KINDS = tuple(Election)
# Steps at whose beginning other small events may be handled first.
YIELDS = frozenset({"elect", "shift", "offline"})
OFFLINE_KINDS = ("offline", "further")
# Values of a step to OFFLINE: a reassignment removes the replicas; the replica was sent a StopReplica before.
REMOVES, STOPPED_BEFORE = (1,), (2,)
Sends = tuple[tuple[int, Message], ...]


class Outcome(NamedTuple):
    """One transition of a controller and the store.

    Attributes:
        sends: messages in their order, with their brokers.
        cut: mask of the brokers to which the controller has closed its connection before it sends.
        epoch: controller epoch of the messages and of the connections.
        reply: new version and ISR for the leader with an accepted proposal; None for no reply.
        closed: whether the proposal of the broker is decided.
        found: the violation, or None.
    """

    label: str
    store: Store
    controller: Controller
    sends: Sends = ()
    cut: int = 0
    epoch: int = 0
    reply: tuple[int, int] | None = None
    closed: bool = False
    found: Found | None = None
    fault: bool = False


class Steps:
    """The steps, for one scope."""

    def __init__(self, assignments: Assignments, tables: Tables, mutant: Mutant, *, unclean: bool) -> None:
        self._assignments = assignments
        self._tables = tables
        self._mutant = mutant
        self._unclean = unclean
        self._local: dict[str, Callable[[Controller, Step, list[tuple[int, Message]]], Controller]] = {
            "lose": self._lose,
            "add": self._add,
            "introduce": self._introduce,
            "resume": self._resume,
            "begin": self._begin,
            "take": self._take,
            "delete": self._delete,
            "check": self._check,
            "verify": self._verify,
            "unmark": self._unmark,
            "leave": self._leave,
        }

    # -- plans ---------------------------------------------------------------------------------------------------------

    def _plan(self, controller: Controller) -> Decision | None:
        """Returns the write of the first step; None if it writes nothing and cannot be refused."""
        step, tables = controller.steps[0], self._tables
        leadership = controller.assignment, controller.leader, controller.isr, controller.recovering
        stopped = self._stopped(controller)
        match step.kind:
            case "elect":
                return self._elected_plan(controller, KINDS[step.value[0]])
            case "shift":
                if controller.leader not in members(step.brokers):
                    return None
                return tables.elect[Election.CONTROLLED_SHUTDOWN][*leadership, self._status(controller), False]
            case "offline" | "further":
                if not step.brokers or controller.replicas[members(step.brokers)[0]] == R_ABSENT:
                    return None
                broker = members(step.brokers)[0]
                plan = tables.offline[*leadership, stopped, broker]
                return plan if plan.writes else None
            case "accept":
                isr, _ = step.value
                return Decision(False, True, controller.leader, 0, isr, False, 0, False)
            case "move":
                plan = tables.hand_over[*leadership, self._status(controller), step.value[0]]
                return plan if plan.writes or plan.refused else None
            case "advance":
                if tables.complete[controller.assignment, controller.isr]:
                    return None
                return tables.raise_epoch[*leadership, stopped]
            case "raise":
                plan = tables.raise_epoch[*leadership, stopped]
                return plan._replace(notify=plan.notify & ~step.brokers)
            case "lead":
                if self._leads_on(controller):
                    return tables.raise_epoch[*leadership, stopped]
                return tables.elect[Election.REASSIGNMENT][*leadership, self._status(controller), False]
            case "lead-on":
                target = self._assignments.masks[controller.assignment].target
                here = controller.leader != NONE and bit(controller.leader) & target
                if here and controller.known[controller.leader]:
                    return tables.raise_epoch[*leadership, stopped]
                return None
        raise AssertionError(step)

    def _leads_on(self, controller: Controller) -> bool:
        return self._tables.led_by_target[controller.assignment, controller.leader, self._status(controller)]

    def _elected_plan(self, controller: Controller, kind: Election) -> Decision | None:
        if kind is Election.OFFLINE and controller.online:
            return None
        allowed = kind is Election.UNCLEAN or (kind is Election.OFFLINE and self._unclean)
        table = self._tables.elect[Election.OFFLINE if kind is Election.UNCLEAN else kind]
        if kind not in (Election.UNCLEAN, Election.OFFLINE):
            allowed = False
        return table[
            controller.assignment,
            controller.leader,
            controller.isr,
            controller.recovering,
            self._status(controller),
            allowed,
        ]

    def _applied(self, controller: Controller, step: Step, plan: Decision) -> Controller:
        """Continue after the commit of a step, with the requests that follow."""
        batch, rest, states = controller.batch, controller.steps[1:], list(controller.replicas)
        notify = batch.notify | plan.notify
        match step.kind:
            case "elect" | "shift" | "lead":
                controller = controller._replace(online=True)
            case "offline" | "further":
                broker = members(step.brokers)[0]
                states[broker] = R_OFFLINE
                if step.value != STOPPED_BEFORE:
                    batch = self._with_stop(controller, batch, broker, controller.leader_epoch - plan.bumps)
                rest = self._rest(controller, step)
            case "move":
                rest = (Step("announce", 0, step.value), *rest)
            case "advance":
                adding = self._assignments.masks[controller.assignment].adding
                for broker in members(adding):
                    if states[broker] == R_ABSENT:
                        states[broker] = R_NEW
                controller = controller._replace(moving=True)
            case _:
                pass
        return controller._replace(
            batch=batch._replace(notify=notify), steps=rest, replicas=(states[0], states[1], states[2])
        )

    def _rest(self, controller: Controller, step: Step) -> tuple[Step, ...]:
        """Returns the steps after one broker of a step to OFFLINE; its messages are sent after the last one."""
        left = step.brokers & (step.brokers - 1)
        rest = controller.steps[1:]
        return (Step("further", left, step.value), *rest) if left else rest

    def _with_stop(self, controller: Controller, batch: Batch, broker: int, epoch: int) -> Batch:
        if not controller.known[broker]:
            return batch
        return batch._replace(stops=(*batch.stops, (broker, STOP, epoch)))

    # -- steps that write nothing --------------------------------------------------------------------------------------

    def _run(
        self,
        label: str,
        store: Store,
        controller: Controller,
        *,
        sends: Sends = (),
        cut: int = 0,
        found: Found | None = None,
    ) -> Outcome:
        """Carry out the steps that write nothing, up to the next one that writes. Sends the gathered messages."""
        sent = list(sends)
        while True:
            if controller.batch != Batch() and not (controller.steps and controller.steps[0].kind == "further"):
                controller = self._flush(controller, sent)
            if not controller.steps:
                break
            step = controller.steps[0]
            local = self._local.get(step.kind)
            if local is not None:
                controller = local(controller._replace(steps=controller.steps[1:]), step, sent)
            elif step.kind in ("announce", "end") or self._plan(controller) is not None:
                break
            else:
                controller = self._unwritten(controller, step)
        if not controller.steps:
            controller = controller._replace(ready=True)
        return Outcome(label, store, controller, tuple(sent), cut, controller.epoch, found=found)

    def _unwritten(self, controller: Controller, step: Step) -> Controller:
        """Continue after a step that has nothing to write."""
        states, rest, batch = list(controller.replicas), controller.steps[1:], controller.batch
        if step.kind in OFFLINE_KINDS and step.brokers:
            broker = members(step.brokers)[0]
            masks = self._assignments.masks[controller.assignment]
            if states[broker] != R_ABSENT:
                states[broker] = R_OFFLINE
                if step.value != STOPPED_BEFORE:
                    batch = self._with_stop(controller, batch, broker, controller.leader_epoch)
                batch = batch._replace(notify=batch.notify | masks.replicas & ~bit(broker))
            rest = self._rest(controller, step)
        elif step.kind == "move":
            rest = (Step("announce", 0, step.value), *rest)
        elif step.kind == "advance":
            return self._complete(controller._replace(steps=rest))
        return controller._replace(steps=rest, batch=batch, replicas=(states[0], states[1], states[2]))

    def _complete(self, controller: Controller) -> Controller:
        """Begin to complete a reassignment whose target is in sync."""
        masks = self._assignments.masks[controller.assignment]
        states = list(controller.replicas)
        for broker in members(masks.adding):
            if states[broker] in (R_NEW, R_OFFLINE):
                states[broker] = R_ONLINE
        left = sum(bit(broker) for broker in BROKERS if states[broker] and not masks.replicas >> broker & 1)
        removed = masks.removing | left
        target = self._assignments.target(controller.assignment)
        steps: list[Step] = [Step("lead"), Step("verify")]
        if removed:
            steps += [Step("offline", removed, REMOVES), Step("delete", removed)]
        steps.append(Step("check", removed, (controller.assignment, target)))
        return controller._replace(
            assignment=target, replicas=(states[0], states[1], states[2]), steps=(*steps, *controller.steps)
        )

    def _unmark(self, controller: Controller, step: Step, sent: list[tuple[int, Message]]) -> Controller:
        return controller._replace(shutting=controller.shutting & ~step.brokers)

    def _lose(self, controller: Controller, step: Step, sent: list[tuple[int, Message]]) -> Controller:
        status = self._status(controller)
        led = controller.leader != NONE and not status[controller.leader]
        return controller._replace(online=controller.online and led)

    def _begin(self, controller: Controller, step: Step, sent: list[tuple[int, Message]]) -> Controller:
        led = controller.leader != NONE and not self._status(controller)[controller.leader]
        return controller._replace(online=led)

    def _leave(self, controller: Controller, step: Step, sent: list[tuple[int, Message]]) -> Controller:
        known = [0 if step.brokers >> broker & 1 else controller.known[broker] for broker in BROKERS]
        return controller._replace(known=(known[0], known[1], known[2]), shutting=controller.shutting & ~step.brokers)

    def _add(self, controller: Controller, step: Step, sent: list[tuple[int, Message]]) -> Controller:
        known = [step.value[broker] if step.brokers >> broker & 1 else controller.known[broker] for broker in BROKERS]
        return controller._replace(known=(known[0], known[1], known[2]))

    def _introduce(self, controller: Controller, step: Step, sent: list[tuple[int, Message]]) -> Controller:
        states, assigned = list(controller.replicas), self._assignments.masks[controller.assignment].replicas
        told = 0
        for broker in members(step.brokers):
            state = states[broker]
            if state == R_ABSENT or (not assigned >> broker & 1 and state != R_NEW):
                continue
            told |= bit(broker) if state != R_NEW else 0
            states[broker] = R_ONLINE
        controller = controller._replace(replicas=(states[0], states[1], states[2]))
        sent += self._leads(controller, told)
        return controller

    def _resume(self, controller: Controller, step: Step, sent: list[tuple[int, Message]]) -> Controller:
        masks = self._assignments.masks[controller.assignment]
        if controller.moving and masks.target & step.brokers:
            return controller._replace(steps=(Step("advance"), *controller.steps))
        return controller

    def _take(self, controller: Controller, step: Step, sent: list[tuple[int, Message]]) -> Controller:
        """Take up strays, then advance the reassignment; `step.value` if only once it is complete."""
        stopped = self._stopped(controller)
        strays = controller.isr & stopped
        if strays:
            states = [R_ONLINE if strays >> broker & 1 else controller.replicas[broker] for broker in BROKERS]
            replicas = (states[0], states[1], states[2])
            number = controller.assignment
            masks = self._assignments.masks[number]
            if not masks.replicas & controller.isr and not masks.adding | masks.removing:
                number = self._assignments.leaving(number, strays)
            controller = controller._replace(replicas=replicas, moving=True, assignment=number)
        complete = self._tables.complete[controller.assignment, controller.isr]
        if controller.moving and (complete or not step.value):
            return controller._replace(steps=(Step("advance"), *controller.steps))
        return controller

    def _delete(self, controller: Controller, step: Step, sent: list[tuple[int, Message]]) -> Controller:
        """Delete replicas that are OFFLINE, without waiting for the responses."""
        states = list(controller.replicas)
        for broker in members(step.brokers):
            if states[broker] == R_OFFLINE:
                states[broker] = R_ABSENT
                if controller.known[broker]:
                    sent.append((broker, self._stopping(controller, broker, DELETE, controller.leader_epoch)))
        return controller._replace(replicas=(states[0], states[1], states[2]))

    def _check(self, controller: Controller, step: Step, sent: list[tuple[int, Message]]) -> Controller:
        target = step.value[1]
        left = [broker for broker in members(step.brokers) if controller.replicas[broker] != R_ABSENT]
        if not left:
            return controller._replace(steps=(Step("end", 0, (target,)), *controller.steps))
        return self._restore(controller, step)._replace(retry=True)

    def _verify(self, controller: Controller, step: Step, sent: list[tuple[int, Message]]) -> Controller:
        """Give up if a replica of the target has left the ISR, as it was read meanwhile."""
        check = next(later for later in controller.steps if later.kind == "check")
        before = self._assignments.masks[check.value[0]]
        missing = self._assignments.masks[controller.assignment].replicas & ~controller.isr
        if missing and before.adding | before.removing and not self._mutant.completes_early:
            return self._uncompleted(controller)
        return controller

    def _uncompleted(self, controller: Controller) -> Controller:
        """Drop the other steps of a completion."""
        check = next(later for later in controller.steps if later.kind == "check")
        rest = controller.steps[controller.steps.index(check) + 1 :]
        return self._restore(controller._replace(steps=rest), check)

    def _restore(self, controller: Controller, step: Step) -> Controller:
        """Restore a reassignment that could not be completed, without the replicas that are stopped."""
        before, _ = step.value
        masks = self._assignments.masks[before]
        gone = sum(bit(broker) for broker in members(masks.removing) if controller.replicas[broker] == R_ABSENT)
        number = self._assignments.without(before, gone) if gone else before
        return controller._replace(assignment=number)

    # -- requests ------------------------------------------------------------------------------------------------------

    def _flush(self, controller: Controller, sent: list[tuple[int, Message]]) -> Controller:
        sent += self._leads(controller, controller.batch.notify)
        for broker, kind, epoch in controller.batch.stops:
            sent.append((broker, self._stopping(controller, broker, kind, epoch)))
        return controller._replace(batch=Batch())

    def _leads(self, controller: Controller, brokers: int) -> Sends:
        masks = self._assignments.masks[controller.assignment]
        return tuple(
            (
                broker,
                Message(
                    controller.known[broker],
                    LEAD,
                    controller.leader,
                    controller.leader_epoch,
                    controller.version,
                    controller.isr,
                    controller.recovering,
                    masks.replicas,
                ),
            )
            for broker in members(brokers)
            if controller.known[broker]
        )

    def _stopping(self, controller: Controller, broker: int, kind: int, epoch: int) -> Message:
        return Message(controller.known[broker], kind, NONE, epoch, 0, 0, False, 0)

    # -- reading memory ------------------------------------------------------------------------------------------------

    def _status(self, controller: Controller) -> tuple[int, int, int]:
        """Returns for each broker: 0 live, 1 shutting down, 2 gone."""
        known, shutting = controller.known, controller.shutting
        status = [2 if not known[broker] else shutting >> broker & 1 for broker in BROKERS]
        return status[0], status[1], status[2]

    def _stopped(self, controller: Controller) -> int:
        """Returns the mask of the brokers that hold no replica: not assigned, and without a state."""
        assigned = self._assignments.masks[controller.assignment].replicas
        return sum(
            bit(broker) for broker in BROKERS if not assigned >> broker & 1 and controller.replicas[broker] == R_ABSENT
        )

    def _checks(self, controller: Controller) -> Controller:
        """Queue a check of the reassignment after a changed ISR, if it may be complete or has a stray."""
        due = controller.moving or bool(controller.isr & self._stopped(controller))
        return controller._replace(due=controller.due or due)
