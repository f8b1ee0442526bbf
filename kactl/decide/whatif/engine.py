"""Engine that evaluates plans of failure scenarios over a snapshot.

A plan lists the failures to simulate; `evaluate` computes its sums over some classes.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Final

import numpy as np

from kactl.decide.state.rows import Ints

from .classes import Classes, PartitionColumns, classes_of
from .failure_model import FailureModel, Harmed, Sums, stacked
from .outcomes import TOPICS, TopicShare
from .topology import BrokerPositions, Topology

# So many sets of failures are summed in less time than merging equal classes takes.
_FEW: Final = 4


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
            return stacked([model.after(failed) for failed in plan.sets])
        case OneMore():
            return stacked([model.each_after(failed) for failed in plan.firsts])
        case InSequence():
            return model.roll(plan.steps)


@dataclasses.dataclass(frozen=True, slots=True)
class TopicLosses:
    """Topics that lose the last in-sync replica of a partition: their number, and those with most such partitions."""

    topics: int = 0
    worst: tuple[TopicShare, ...] = ()


class Engine:
    """Engine over a snapshot in memory.

    Args:
        topic: int[n], the position of each partition's topic in `names`.

    Attributes:
        stuck: partitions without a leader although an eligible replica seems to be alive.
    """

    def __init__(self, columns: PartitionColumns, topic: Ints, names: Sequence[str], topology: Topology) -> None:
        self.topology = topology
        self._topic, self._names = topic, names
        self._classes, self.stuck = classes_of(columns, topology.brokers, topology.away)
        self._rows = model_of(self._classes, topology)

    @functools.cached_property
    def _model(self) -> FailureModel:
        return model_of(self._classes.merged(), self.topology)

    @property
    def classes(self) -> int:
        return len(self._model.now.classes)

    @property
    def topics(self) -> int:
        return len(self._names)

    def sums(self, plan: Plan) -> Sums:
        """Return the sums of a plan, with the shapes of `Plan`."""
        # Equal classes are merged for a plan that needs many passes over them.
        is_merged = "_model" in self.__dict__
        few = isinstance(plan, Simultaneous) and len(plan.sets) <= _FEW
        return evaluate(self._rows if few and not is_merged else self._model, plan)

    def harmed(self, failed: BrokerPositions) -> Harmed:
        """Return the rows of partitions that are worse off if these brokers fail."""
        return self._rows.harmed(failed)

    def lost(self, sets: Sequence[BrokerPositions]) -> list[TopicLosses]:
        """Return for each set of brokers the topics with partitions that no live replica can lead without loss."""
        return [self._lost(failed) for failed in sets]

    def _lost(self, failed: BrokerPositions) -> TopicLosses:
        hit = np.bincount(self._topic[self._rows.losing_safe_leaders(failed)], minlength=len(self._names))
        topics = int(np.count_nonzero(hit))
        order = np.argsort(-hit, kind="stable")[: min(TOPICS, topics)]
        worst = [TopicShare(topic=self._names[int(index)], partitions=int(hit[index])) for index in order]
        return TopicLosses(topics, tuple(worst))


def model_of(classes: Classes, topology: Topology) -> FailureModel:
    """Return the failure model of the brokers of a snapshot."""
    return FailureModel(classes, topology.positions(sorted(topology.away)), len(topology.brokers))
