"""What would be offline if brokers or racks died, from any snapshot of a cluster.

    a file ──── snapshots/ ─┐                              ┌─▶ answer: outcomes, ranked and explained
    the tables of an ingest ┴▶ partitions ─▶ classes ─▶ sums    ▲
                                    failure_model.py ────┴───────┴ sweeps.py, words.py

Partitions that would share every fate are one class; what a death changes is a sum over classes, so it does not matter
whether they are summed up here or by Spark in many tasks. The election is Kafka's: the first live in-sync replica in
assignment order; where it is allowed and nobody in sync is alive, the first live one.

`advise` is what a report asks for: the worst single brokers, pairs and racks as the logs end.
"""

from .advice import advise
from .sweep import Answer, Cost, Kind, Now, Outcome, Rolling, Scenario, Sweep, TopicShare

__all__ = ["Answer", "Cost", "Kind", "Now", "Outcome", "Rolling", "Scenario", "Sweep", "TopicShare", "advise"]
