"""Who leads where others are preferred: found over all partitions at once.

The first replica of an assignment is the preferred one. Where, of the partitions that prefer a broker, more than a
percentage is led by others, it is to get them back, as far as it is online and in sync. Unlike the count of imbalanced
partitions that the cluster keeps, this takes partitions that are being reassigned like any other.

Source: the classic controller's checkAndTriggerAutoLeaderRebalance.
"""

import dataclasses

import numpy as np

from kactl.model import NO_EPOCH
from kactl.state.rows import BrokerSet, Ints, RowNumbers, first, preferred_slot, some
from kactl.state.table import Table


@dataclasses.dataclass(frozen=True, slots=True)
class Balance:
    """How far each broker leads the partitions that prefer it. n brokers, ascending.

    Attributes:
        brokers: int32[n], those that some partition prefers.
        preferring: int[n], how many partitions prefer the broker, those without leadership too.
        elsewhere: int[n], how many of them have leadership and another leader, or none.
        over: the brokers of which too many are led elsewhere.
        returning: the partitions of those that the preferred replica could lead now.
    """

    brokers: Ints
    preferring: RowNumbers
    elsewhere: RowNumbers
    over: Ints
    returning: RowNumbers


def balance(table: Table, live: BrokerSet, *, percentage: int) -> Balance:
    """Look at all partitions but those of topics that wait for deletion.

    Args:
        live: the brokers that may lead.
        percentage: of the partitions that prefer a broker, how many others may lead; it is over with the first beyond.
    """
    at = table.not_queued(np.flatnonzero(some(table.column("assigned"))))
    replicas, head = table.column("replicas")[:, at], preferred_slot(table.column("assigned")[:, at])
    preferred = first(head, replicas)
    elsewhere = (table.column("leader_epoch")[at] != NO_EPOCH) & (table.column("leader")[at] != preferred)
    brokers, group = np.unique(preferred, return_inverse=True)
    preferring = np.bincount(group, minlength=len(brokers))
    led_elsewhere = np.bincount(group[elsewhere], minlength=len(brokers))
    # In whole numbers, so that a share which is exactly the percentage is not over it.
    over = led_elsewhere * 100 > preferring * percentage
    wanted = np.flatnonzero(elsewhere & over[group])
    may_lead = head & table.column("in_sync")[:, at] & ~table.column("dir_offline")[:, at] & live[replicas]
    return Balance(brokers, preferring, led_elsewhere, brokers[over], at[wanted[some(may_lead[:, wanted])]])
