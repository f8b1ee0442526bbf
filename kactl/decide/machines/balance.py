"""Preferred leader imbalance, computed over all partitions at once.

The first replica of an assignment is the preferred one. If other brokers lead more than a percentage of the partitions
that prefer a broker, leadership returns to that broker where it is online and in sync. Unlike the imbalance counter of
the cluster, this includes partitions that are being reassigned.

Source: the classic controller's checkAndTriggerAutoLeaderRebalance.
"""

import dataclasses

import numpy as np

from kactl.decide.state.rows import BrokerSet, Ints, RowNumbers, first, preferred_slot, some
from kactl.decide.state.table import Table
from kactl.model import NO_EPOCH


@dataclasses.dataclass(frozen=True, slots=True)
class Balance:
    """Imbalance of n brokers, ascending.

    Attributes:
        brokers: int32[n], the brokers that some partition prefers.
        preferring: int[n], the number of partitions that prefer the broker, including those without leadership.
        elsewhere: int[n], the number of these with leadership and another leader, or none.
        over: the brokers above the limit.
        returning: the partitions of brokers above the limit that the preferred replica could lead now.
    """

    brokers: Ints
    preferring: RowNumbers
    elsewhere: RowNumbers
    over: Ints
    returning: RowNumbers


def balance(
    table: Table, live: BrokerSet, *, percentage: int, held: RowNumbers | None = None, only: BrokerSet | None = None
) -> Balance:
    """Returns the imbalance over all partitions except those of topics that are queued for deletion.

    Args:
        live: the brokers that may lead.
        percentage: the share of the partitions that prefer a broker which other brokers may lead; above it, the broker
            is over.
        held: partitions whose leaders stay; they do not count as led elsewhere.
        only: the brokers that leadership may return to; None for all.
    """
    rows = table.not_queued(np.flatnonzero(some(table.column("assigned"))))
    replicas, head = table.column("replicas")[:, rows], preferred_slot(table.column("assigned")[:, rows])
    preferred = first(head, replicas)
    elsewhere = (table.column("leader_epoch")[rows] != NO_EPOCH) & (table.column("leader")[rows] != preferred)
    if held is not None and len(held):
        elsewhere &= ~np.isin(rows, held)
    if only is not None:
        elsewhere &= only[preferred]
    brokers, group = np.unique(preferred, return_inverse=True)
    preferring = np.bincount(group, minlength=len(brokers))
    led_elsewhere = np.bincount(group[elsewhere], minlength=len(brokers))
    # Integer arithmetic: a share that equals the percentage is not over it.
    over = led_elsewhere * 100 > preferring * percentage
    candidates = np.flatnonzero(elsewhere & over[group])
    may_lead = head & table.column("in_sync")[:, rows] & ~table.column("dir_offline")[:, rows] & live[replicas]
    return Balance(brokers, preferring, led_elsewhere, brokers[over], rows[candidates[some(may_lead[:, candidates])]])
