"""What is to be summed up, and by whom: here, or by Spark in as many tasks as it likes.

A plan says for which deaths; `evaluate` makes its sums of some classes. Sums of all classes are the sums of the parts,
so a part can be anything: all classes at once, or those of one task.
"""

import dataclasses

import numpy as np

from .failure_model import COUNTS, FailureModel, Sums, stacked

# Brokers by their position.
BrokerPositions = tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Simultaneous:
    """Each of these sets by itself; sums are [sets, ...]."""

    sets: tuple[BrokerPositions, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class OneMore:
    """Each of these sets, and any one broker more; sums are [sets, B, ...]."""

    firsts: tuple[BrokerPositions, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class InSequence:
    """These, one after the other, each back before the next; sums are [steps + 1, ...], see `FailureModel.roll`."""

    steps: tuple[BrokerPositions, ...]


Plan = Simultaneous | OneMore | InSequence


def evaluate(model: FailureModel, plan: Plan) -> Sums:
    """The sums of a plan over some classes."""
    match plan:
        case Simultaneous():
            return stacked([model.after(who) for who in plan.sets])
        case OneMore():
            return stacked([model.each_after(who) for who in plan.firsts])
        case InSequence():
            return model.roll(plan.steps)


def packed(sums: Sums) -> tuple[bytes, bytes]:
    """Sums as they travel from a task; `unpacked` needs to know the number of brokers only."""
    return sums.counts.tobytes(), sums.load.tobytes()


def unpacked(counts: bytes, load: bytes, brokers: int) -> Sums:
    """The same again, with all scenarios in one row: [n, 6] and [n, B]."""
    return Sums(np.frombuffer(counts).reshape(-1, len(COUNTS)), np.frombuffer(load).reshape(-1, brokers))


def shaped(sums: Sums, plan: Plan) -> Sums:
    """Sums of all scenarios in one row, as the plan has them."""
    if not isinstance(plan, OneMore):
        return sums
    shape = (len(plan.firsts), -1)
    return Sums(sums.counts.reshape(*shape, len(COUNTS)), sums.load.reshape(*shape, sums.load.shape[-1]))
