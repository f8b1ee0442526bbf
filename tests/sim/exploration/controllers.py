"""Transitions of a controller instance: read, plan, commit, apply and send, one commit at a time.

A controller handles one event after the other. The rest of an event is a list of steps. A step that writes is planned
from memory, and its commit is one transition; steps that write nothing belong to the transition before them. So
everything else can happen between any two commits, and between a plan and its commit.

    lose     partitions without a live leader become OFFLINE
    elect    elect the leader of an OFFLINE partition; value: kind of the election
    shift    move leadership off a broker that is shutting down
    offline  take brokers out of the ISR, one after the other; `further` is the rest of such a step
    add, introduce, resume   a broker has started: know it, send it everything, resume reassignments to it
    begin, take              end of a takeover: state of the partition; strays and reassignments
    raise, unmark            a broker is not to stop any more: raise the leader epoch, end the mark
    accept   write a proposed ISR
    leave    forget registrations that have ended
    move, announce           a new target: hand over leadership, store it
    advance, lead, verify, delete, check, end   steps of a reassignment

Source: `kactl.actors.handlers` and `kactl.actors.machines`. The decisions are looked up in `tables`.
"""

from collections.abc import Iterator

from kactl.decide.machines.election import Election

from .components import (
    BROKERS,
    NONE,
    R_ABSENT,
    R_OFFLINE,
    R_ONLINE,
    STANDBY,
    STOP,
    Controller,
    Message,
    Proposal,
    Step,
    Store,
    bit,
    members,
)
from .invariants import Found, on_accept, on_assignment, on_write
from .steps import KINDS, OFFLINE_KINDS, REMOVES, STOPPED_BEFORE, YIELDS, Outcome, Steps

ALL = 7


class Controllers(Steps):
    """The transitions of a controller, for one scope."""

    # -- transitions ---------------------------------------------------------------------------------------------------

    def outcomes(self, store: Store, controller: Controller) -> Iterator[Outcome]:
        """Yields every transition of one controller that does not depend on a broker."""
        if not controller.epoch:
            if not store.held:
                yield self._elected(store)
            return
        if not store.held or controller.epoch != store.epoch:
            yield Outcome("learns that it is deposed", store, STANDBY, cut=ALL, epoch=controller.epoch)
        if store.held and controller.epoch == store.epoch and store.losses:
            lost = store._replace(held=False, losses=store.losses - 1)
            yield Outcome("loses its session", lost, controller, epoch=controller.epoch, fault=True)
        if controller.steps:
            yield from self._commit(store, controller)
        else:
            yield from self._events(store, controller)

    def _elected(self, store: Store) -> Outcome:
        epoch = store.epoch + 1
        elected = store._replace(epoch=epoch, held=True)
        masks = self._assignments.masks[store.assignment]
        live = sum(bit(broker) for broker in BROKERS if store.registered[broker])
        states = tuple(
            (R_ONLINE if live >> broker & 1 else R_OFFLINE) if masks.replicas >> broker & 1 else R_ABSENT
            for broker in BROKERS
        )
        controller = Controller(
            epoch=epoch,
            assignment=store.assignment,
            replicas=(states[0], states[1], states[2]),
            known=store.registered,
            moving=bool(masks.adding | masks.removing),
            steps=(
                Step("introduce", live),
                Step("offline", masks.replicas & ~live),
                Step("begin"),
                Step("elect", 0, (KINDS.index(Election.OFFLINE),)),
                Step("take"),
            ),
        )
        return self._run("is elected", elected, _read(controller, store))

    def _events(self, store: Store, controller: Controller) -> Iterator[Outcome]:
        """Yields the beginning of each event that may be handled now."""
        if not controller.ready:
            # The takeover is complete as soon as no step is left.
            controller = controller._replace(ready=True)
        if store.registered != controller.known:
            yield self._brokers_changed(store, controller)
        if controller.due:
            steps = (Step("take", 0, (1,)),)
            yield self._run("checks the reassignment", store, controller._replace(due=False, steps=steps))
        if controller.retry:
            yield self._writes_failed(store, controller)
        for broker in members(controller.shutting):
            yield self._restored(store, controller, broker)
        if store.requests:
            for outcome in self._requested(store._replace(requests=store.requests - 1), controller):
                yield outcome._replace(fault=True)

    def _brokers_changed(self, store: Store, controller: Controller) -> Outcome:
        now, known = store.registered, controller.known
        new = sum(bit(broker) for broker in BROKERS if now[broker] and not known[broker])
        dead = sum(bit(broker) for broker in BROKERS if known[broker] and not now[broker])
        bounced = sum(bit(broker) for broker in BROKERS if known[broker] and now[broker] > known[broker])
        elect = Step("elect", 0, (KINDS.index(Election.OFFLINE),))
        steps: list[Step] = []
        if new:
            steps += [Step("add", new, now), Step("introduce", new), elect, Step("resume", new)]
        for gone in (bounced, dead):
            if gone:
                steps += [Step("leave", gone), Step("lose"), elect, Step("offline", gone)]
            if gone and gone == bounced:
                steps += [Step("add", bounced, now), Step("introduce", bounced), elect, Step("resume", bounced)]
        controller = controller._replace(steps=tuple(steps))
        return self._run("reads the brokers", store, controller, cut=new | dead | bounced)

    def _writes_failed(self, store: Store, controller: Controller) -> Outcome:
        """Learn which writes were committed without a response, send them, and repeat the others."""
        controller = _read(controller._replace(retry=False), store)
        masks = self._assignments.masks[controller.assignment]
        sends = self._leads(controller, masks.replicas)
        gone = sum(bit(broker) for broker in BROKERS if not controller.known[broker]) & masks.replicas
        steps = [Step("lose"), Step("elect", 0, (KINDS.index(Election.OFFLINE),))]
        steps += [Step("offline", gone)] if gone else []
        steps += [Step("resume", ALL)]
        return self._run("repeats what failed", store, controller._replace(steps=tuple(steps)), sends=sends)

    def _restored(self, store: Store, controller: Controller, broker: int) -> Outcome:
        follows = controller.leader != broker and not self._mutant.keeps_stop_epoch
        raises = (Step("raise", bit(broker)),) if follows else ()
        controller = controller._replace(
            steps=(
                *raises,
                Step("unmark", bit(broker)),
                Step("introduce", bit(broker)),
                Step("elect", 0, (KINDS.index(Election.OFFLINE),)),
                Step("resume", bit(broker)),
            ),
        )
        return self._run(f"ends the shutdown of {broker}, which has not stopped", store, controller)

    def _requested(self, store: Store, controller: Controller) -> Iterator[Outcome]:
        """Yields the requests of operators and brokers."""
        status = self._status(controller)
        masks = self._assignments.masks[controller.assignment]
        for broker in members(masks.replicas & ~controller.shutting):
            if controller.known[broker] and masks.replicas != bit(broker):
                yield self._shuts_down(store, controller, broker)
        current = self._assignments.all[controller.assignment]
        wanted: list[tuple[int, ...] | None] = [*self._assignments.targets]
        if current.is_being_reassigned:
            wanted.append(None)
        for target in wanted:
            number = self._assignments.move(controller.assignment, target)
            adding = self._assignments.masks[number].adding
            if any(status[broker] for broker in members(adding) if target):
                continue
            label = "is asked to cancel the reassignment" if target is None else f"is asked to reassign to {target}"
            # A request for the present assignment is advanced only, and so completed once more.
            same = number == controller.assignment
            step = Step("advance") if same else Step("move", 0, (number,))
            moved = controller._replace(moving=controller.moving or same, steps=(step,))
            yield self._run(label, store, moved)
        if controller.leader == NONE or not controller.known[controller.leader]:
            step = Step("elect", 0, (KINDS.index(Election.UNCLEAN),))
            yield self._run("is asked for an unclean election", store, controller._replace(steps=(step,)))
        elif controller.leader != current.replicas[0]:
            step = Step("elect", 0, (KINDS.index(Election.PREFERRED),))
            yield self._run("is asked for a preferred election", store, controller._replace(steps=(step,)))

    def _shuts_down(self, store: Store, controller: Controller, broker: int) -> Outcome:
        sends: list[tuple[int, Message]] = []
        controller = controller._replace(shutting=controller.shutting | bit(broker))
        if controller.leader == broker:
            steps = (Step("shift", bit(broker)),)
        else:
            steps = (Step("offline", bit(broker), STOPPED_BEFORE),)
            sends.append((broker, self._stopping(controller, broker, STOP, controller.leader_epoch)))
        return self._run(f"is asked to shut down {broker}", store, controller._replace(steps=steps), sends=tuple(sends))

    # -- proposals -----------------------------------------------------------------------------------------------------

    def may_judge(self, controller: Controller) -> bool:
        """Whether a proposal may be handled now: between two events, or before a step at which one is preempted."""
        if not controller.epoch:
            return False
        if not controller.steps:
            return True
        step = controller.steps[0]
        return controller.ready and step.kind in YIELDS and step.value != REMOVES

    def judge(self, store: Store, controller: Controller, broker: int, proposal: Proposal) -> Iterator[Outcome]:
        """Yields the decision on the proposal of a broker; an accepted one is a further step."""
        if controller.known[broker] != proposal.incarnation:
            yield Outcome(f"refuses the proposal of {broker}: older registration", store, controller, closed=True)
            return
        error, ahead = self._judged(controller, broker, proposal)
        if ahead:
            if store.writer > controller.epoch:
                yield Outcome("finds leadership of a later controller", store, STANDBY, cut=ALL, epoch=controller.epoch)
                return
            controller = _read(controller, store)
            error, ahead = self._judged(controller, broker, proposal)
        found = on_accept(controller, broker, proposal, error, self._assignments)
        label = f"judges the proposal of {broker}: {error}"
        if error == "same":
            controller = self._checks(controller)
            reply = controller.version, controller.isr
            yield Outcome(label, store, controller, reply=reply, closed=True, found=found, epoch=controller.epoch)
            yield Outcome(label + ", lost", store, controller, found=found, fault=True)
        elif error == "taken":
            step = Step("accept", bit(broker), (proposal.isr, proposal.incarnation))
            yield Outcome(label, store, controller._replace(steps=(step, *controller.steps)), found=found)
        else:
            yield Outcome(label, store, controller, closed=error != "NOT_CONTROLLER", found=found)

    def _judged(self, controller: Controller, broker: int, proposal: Proposal) -> tuple[str, bool]:
        known = controller.known
        ineligible = any(
            not known[member]
            or (controller.shutting & ~controller.isr) >> member & 1
            or (known[member] != proposal.incarnations[member] and not self._mutant.ignores_member_epochs)
            for member in members(proposal.isr)
        )
        leader_epoch = _sign(proposal.leader_epoch - controller.leader_epoch)
        if self._mutant.ignores_proposal_epoch and leader_epoch < 0:
            leader_epoch = 0
        return self._tables.judge[
            self._assignments.masks[controller.assignment].replicas,
            controller.isr,
            controller.recovering,
            controller.leader == broker,
            broker,
            proposal.isr,
            leader_epoch,
            _sign(proposal.version - controller.version),
            ineligible,
        ]

    # -- commits -------------------------------------------------------------------------------------------------------

    def commits(self, store: Store, controller: Controller) -> Iterator[Outcome]:
        """Yields the outcomes of the write of the first step; none if it has nothing to write."""
        if controller.steps[0].kind in ("announce", "end") or self._plan(controller) is not None:
            yield from self._commit(store, controller)

    def _commit(self, store: Store, controller: Controller) -> Iterator[Outcome]:
        """Yields the outcomes of the write of the first step."""
        step, stores = controller.steps[0], controller.steps[0].kind in ("announce", "end")
        plan = None if stores else self._plan(controller)
        if plan is not None and plan.refused:
            # Without a candidate: read the row, and plan it again.
            yield self._conflict(store, controller, step)
            return
        if controller.epoch != store.epoch and not self._mutant.writes_unfenced:
            yield Outcome(f"{step.kind}: refused by the fence", store, STANDBY, cut=ALL, epoch=controller.epoch)
            return
        if stores:
            yield self._store_assignment(store, controller, step)
            return
        assert plan is not None, (controller, step)
        if store.version != controller.version and not self._mutant.writes_blindly:
            yield self._conflict(store, controller, step)
            return
        written = store._replace(
            leader=plan.leader,
            leader_epoch=controller.leader_epoch + plan.bumps,
            version=controller.version + 1,
            isr=plan.isr,
            recovering=plan.recovering,
            writer=controller.epoch,
        )
        found = on_write(store, written, controller, plan, step, self._assignments, allowed=self._unclean)
        applied = _read(controller, written)
        label = f"commits {step.kind}{_named(step)}"
        if step.kind == "accept":
            yield from self._accepted(label, written, applied, found)
        else:
            after = self._applied(applied, step, plan)
            yield Outcome(label, written, after, found=found) if found else self._run(label, written, after)
        if store.losses and found is None:
            yield from self._lost(label, store, written, controller, step)

    def _accepted(self, label: str, store: Store, controller: Controller, found: Found | None) -> Iterator[Outcome]:
        controller = self._checks(controller._replace(steps=controller.steps[1:]))
        reply = controller.version, controller.isr
        done = self._run(label, store, controller, found=found)
        yield done._replace(reply=reply, closed=True)
        yield done._replace(label=label + ", the reply is lost", fault=True)

    def _lost(self, label: str, store: Store, written: Store, controller: Controller, step: Step) -> Iterator[Outcome]:
        """Yields a commit without a response that cannot be read back either: done, and not done."""
        failed = self._failed(controller._replace(retry=True), step)
        for now, what in ((written, "done"), (store, "not done")):
            now = now._replace(losses=store.losses - 1)
            yield self._run(f"{label}: no response, {what}", now, failed)._replace(fault=True)

    def _failed(self, controller: Controller, step: Step) -> Controller:
        """Continue after a step that the store has not committed, as far as known."""
        rest = controller.steps[1:]
        if step.kind in OFFLINE_KINDS:
            rest = self._rest(controller, step)
        elif step.kind in ("move", "advance", "raise"):
            rest = ()
        elif step.kind == "lead":
            return self._uncompleted(controller._replace(steps=rest))._replace(retry=True)
        return controller._replace(steps=rest)

    def _conflict(self, store: Store, controller: Controller, step: Step) -> Outcome:
        label = f"{step.kind}: reads the row again"
        if store.version != controller.version and store.writer <= controller.epoch:
            read = _read(controller, store)
            if step.kind == "accept":
                return self._run(label, store, read._replace(steps=read.steps[1:]))
            return self._run(label, store, read)
        return self._run(f"{step.kind}: refused", store, self._refused(controller, step))

    def _refused(self, controller: Controller, step: Step) -> Controller:
        """Continue after a step that has no candidate."""
        if step.kind == "lead":
            return controller._replace(steps=(Step("lead-on"), *controller.steps[1:]))
        return self._failed(controller, step)

    def _store_assignment(self, store: Store, controller: Controller, step: Step) -> Outcome:
        (number,) = step.value
        found = on_assignment(store, controller, number, self._assignments, ends=step.kind == "end")
        written = store._replace(assignment=number)
        before = self._assignments.masks[controller.assignment].replicas
        controller = controller._replace(assignment=number, steps=controller.steps[1:])
        if step.kind == "end":
            controller = controller._replace(moving=False)
        else:
            unneeded = before & ~self._assignments.masks[number].replicas
            steps = [Step("offline", unneeded, REMOVES), Step("delete", unneeded)] if unneeded else []
            controller = controller._replace(steps=(*steps, Step("advance"), *controller.steps))
            controller = controller._replace(moving=True)
        return self._run(f"stores {self._assignments.all[number]}", written, controller, found=found)


def _read(controller: Controller, store: Store) -> Controller:
    """Returns the controller with the stored leadership."""
    return controller._replace(
        leader=store.leader,
        leader_epoch=store.leader_epoch,
        version=store.version,
        isr=store.isr,
        recovering=store.recovering,
    )


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def _named(step: Step) -> str:
    brokers = ", ".join(map(str, members(step.brokers)))
    return f" of {brokers}" if brokers else ""
