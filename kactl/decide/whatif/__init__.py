"""Failure simulation: partitions that go offline if brokers or racks fail, computed from a snapshot of a cluster.

    the controller's table ──┐                              ┌─▶ answer: outcomes, ranked and explained
    files, logs (forensics) ─┴▶ columns ─▶ classes ─▶ sums ──┘
                                classes.py  failure_model.py    analysis.py, sentences.py

Partitions that behave equally in every failure form a class. The effect of a failure is a sum over classes. The
election is Kafka's: the first live in-sync replica in assignment order, or the first live replica if unclean election
is allowed and no in-sync replica is alive.
"""

from .outcomes import Answer, Cost, Kind, Now, Outcome, RestartPlan, RestartStep, Rolling, Scenario, Sweep, TopicShare

__all__ = [
    "Answer",
    "Cost",
    "Kind",
    "Now",
    "Outcome",
    "RestartPlan",
    "RestartStep",
    "Rolling",
    "Scenario",
    "Sweep",
    "TopicShare",
]
