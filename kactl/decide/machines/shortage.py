"""Texts about participants and brokers that cannot get replicas: which ones, why, and the remedy."""

from collections.abc import Collection, Set
from typing import Final

import numpy as np

from kactl.decide.state.cluster import Cluster
from kactl.model import NO_BROKER

# A line names no more; `kactl get brokers` lists all.
NAMED_MAX: Final = 20


def too_few(cluster: Cluster, usable: Collection[int], wanted: int) -> str:
    """Returns why there are not enough brokers for a number of replicas, with those that are missing."""
    registered, held = cluster.brokers.keys(), np.unique(cluster.table.column("replicas")).tolist()
    missing = unusable(cluster, ({*registered, *held} - {NO_BROKER}) - set(usable))
    are = "is" if len(registered) == 1 else "are"
    return (
        f"{wanted} replicas need {wanted} brokers, {len(registered)} {are} registered ({_listed(registered)}), and "
        f"{len(usable)} of them can be used{missing and '; '}{missing}: start {wanted - len(usable)} more, or choose a "
        "lower replication factor"
    )


def unusable(cluster: Cluster, brokers: Set[int]) -> str:
    """Returns why some brokers cannot get replicas; empty if there are none."""
    registered, fenced = brokers & cluster.brokers.keys(), brokers & cluster.fenced
    reasons = {
        "not registered": (brokers - registered, "start it"),
        "fenced, since it has never linked to this controller": (
            fenced,
            "let it reach its network",
        ),
        "drained or shutting down": (registered - fenced, "kactl broker drain --undo"),
    }
    return "; ".join(
        f"broker {_listed(those)} is {reason} ({remedy})" for reason, (those, remedy) in reasons.items() if those
    )


def _listed(brokers: Collection[int]) -> str:
    more = f" and {len(brokers) - NAMED_MAX} more" if len(brokers) > NAMED_MAX else ""
    return (", ".join(map(str, sorted(brokers)[:NAMED_MAX])) or "none") + more
