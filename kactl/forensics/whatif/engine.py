"""Plans of scenarios, and their evaluation over classes.

A plan lists the failures to simulate; `evaluate` computes its sums over some classes. Sums are additive, so the classes
can be evaluated all at once in this process, or in parts by Spark tasks.
"""

import dataclasses

import numpy as np

from .failure_model import COUNTS, FailureModel, Sums, stacked

# Brokers by their position.
BrokerPositions = tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Simultaneous:
    """Failure of each set separately; sums are [sets, ...]."""

    sets: tuple[BrokerPositions, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class OneMore:
    """Failure of each set together with every other broker; sums are [sets, B, ...]."""

    firsts: tuple[BrokerPositions, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class InSequence:
    """Rolling restart: each set is back before the next fails; sums are [steps + 1, ...], see `FailureModel.roll`."""

    steps: tuple[BrokerPositions, ...]


Plan = Simultaneous | OneMore | InSequence


def evaluate(model: FailureModel, plan: Plan) -> Sums:
    """Return the sums of a plan over the classes of a model."""
    match plan:
        case Simultaneous():
            return stacked([model.after(who) for who in plan.sets])
        case OneMore():
            return stacked([model.each_after(who) for who in plan.firsts])
        case InSequence():
            return model.roll(plan.steps)


def packed(sums: Sums) -> tuple[bytes, bytes]:
    """Serialise sums for the transfer from a task; `unpacked` needs only the number of brokers."""
    return sums.counts.tobytes(), sums.load.tobytes()


def unpacked(counts: bytes, load: bytes, brokers: int) -> Sums:
    """Deserialise sums, with all scenarios along one axis: [n, 6] and [n, B]."""
    return Sums(np.frombuffer(counts).reshape(-1, len(COUNTS)), np.frombuffer(load).reshape(-1, brokers))


def shaped(sums: Sums, plan: Plan) -> Sums:
    """Reshape sums with all scenarios along one axis to the shape of the plan."""
    if not isinstance(plan, OneMore):
        return sums
    shape = (len(plan.firsts), -1)
    return Sums(sums.counts.reshape(*shape, len(COUNTS)), sums.load.reshape(*shape, sums.load.shape[-1]))
