"""Leader election strategies: six pure functions over rows.

* first leader: the first online replica. All online replicas start in sync.
* offline: the first replica that is online and in sync. The ISR keeps its online members. If no member of the ISR is
  online and an unclean election is allowed, the first online replica, which then is the whole ISR.
  A drained broker is elected if it is in sync and no other member of the ISR is online.
* reassignment: the first replica of the target (replicas that are not being removed) that is online and in sync. The
  ISR does not change.
* preferred: the first replica only, if it is online and in sync. The ISR does not change.
* controlled shutdown: the first in-sync replica that is registered, has a working directory, and is not shutting down.
  All brokers that are shutting down leave the ISR.
* ownership: the first online replica, in sync or not, and the ISR is the assignment. Only for topics of the kind
  `ownership`, which keep no records; `kactl.decide.machines.ownership` chooses the assignment. A leader that is still
  online is not notified: it leads until the next one is prepared.

A broker is online here if it is registered, not shutting down, and the replica's directory works. Fenced brokers are
online, but are never elected, and do not start in sync: an election that finds no other candidate waits.

"First" always means first in assignment order. An in-sync replica outside of the assignment stays in the ISR while it
is online and can never be elected.

Source: the classic controller's Election and PartitionLeaderElectionAlgorithms.
"""

import dataclasses
import enum
from collections.abc import Callable
from typing import Final

import numpy as np

from kactl.decide.state.rows import Bools, Ints, LiveBrokers, Rows, choose, first, preferred_slot, some
from kactl.model import NO_LEADER


@dataclasses.dataclass(frozen=True, slots=True)
class Elected:
    """Result of an election of n rows. Where `leader` is NO_LEADER, the other columns have no meaning.

    Attributes:
        notify: bool[W, n], the replicas that receive a LeaderAndIsr.
        unclean: bool[n], the leader was not in sync.
    """

    leader: Ints
    in_sync: Bools
    recovering: Bools
    notify: Bools
    unclean: Bools


class Election(enum.Enum):
    """Reason for an election. UNCLEAN is requested by an operator: any online replica may lead if no in-sync one is
    online.
    """

    OFFLINE = "offline"
    UNCLEAN = "unclean"
    REASSIGNMENT = "reassignment"
    PREFERRED = "preferred"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    OWNERSHIP = "ownership"


Strategy = Callable[[Rows, LiveBrokers, Bools], Elected]


def first_leader(p: Rows, brokers: LiveBrokers) -> Elected:
    """Elect the first leader of a new partition. Every online replica starts in sync."""
    eligible, none = p.assigned & p.online(brokers.electable), np.zeros(len(p), np.bool_)
    notify = eligible if brokers.unfenced is None else p.assigned & p.online(brokers.live)
    return Elected(first(eligible, p.replicas), eligible, recovering=none, notify=notify, unclean=none)


def nobody_in_sync_online(p: Rows, brokers: LiveBrokers) -> Bools:
    """Returns bool[n]: no member of the ISR is online, so that only an unclean election can succeed."""
    return ~some(p.in_sync & p.online(brokers.live))


def offline(p: Rows, brokers: LiveBrokers, unclean: Bools) -> Elected:
    """Elect the first online in-sync replica, or any online replica if no in-sync one is online and `unclean` allows
    it.
    """
    online = p.online(brokers.live)
    candidates = p.assigned & online if brokers.unfenced is None else p.assigned & p.online(brokers.unfenced)
    in_sync_online = p.in_sync & online
    clean = first(candidates & p.in_sync, p.replicas)
    alone = np.zeros(len(p), np.bool_)
    if brokers.spare is not None:
        spare = first(p.assigned & p.in_sync & p.online(brokers.spare), p.replicas)
        alone = ~some(in_sync_online) & (spare != NO_LEADER)
        clean = choose(alone, spare, clean)
    fallback = choose(unclean & ~some(in_sync_online), first(candidates, p.replicas), np.int32(NO_LEADER))
    leader = choose(clean != NO_LEADER, clean, fallback)
    is_unclean = (clean == NO_LEADER) & (leader != NO_LEADER)
    notify = candidates if brokers.unfenced is None else p.assigned & online
    return Elected(
        leader,
        in_sync=choose(is_unclean | alone, p.replicas == leader, in_sync_online),
        recovering=p.recovering | is_unclean if brokers.recovery else p.recovering,
        notify=notify | (alone & (p.replicas == leader)),
        unclean=is_unclean,
    )


def reassignment(p: Rows, brokers: LiveBrokers, unclean: Bools) -> Elected:
    """Elect the first replica of the target that is online and in sync. The ISR does not change."""
    target = p.assigned & ~p.removing
    return _same_isr(p, first(target & p.in_sync & p.online(brokers.electable), p.replicas), notify=target)


def preferred(p: Rows, brokers: LiveBrokers, unclean: Bools) -> Elected:
    """Elect the first replica of the assignment, if it is online and in sync. The ISR does not change."""
    head = preferred_slot(p.assigned)
    return _same_isr(p, first(head & p.in_sync & p.online(brokers.electable), p.replicas), notify=p.assigned)


def controlled_shutdown(p: Rows, brokers: LiveBrokers, unclean: Bools) -> Elected:
    """Elect the first in-sync replica that stays. All brokers that are shutting down leave the ISR; dead brokers do
    not.
    """
    registered = p.online(brokers.registered)
    leaving = brokers.registered[p.replicas] & ~brokers.live[p.replicas]
    leader = first(p.assigned & p.in_sync & p.online(brokers.electable), p.replicas)
    elected = _same_isr(p, leader, notify=p.assigned & registered)
    return dataclasses.replace(elected, in_sync=p.in_sync & ~leaving)


def ownership(p: Rows, brokers: LiveBrokers, unclean: Bools) -> Elected:
    """Elect the first assigned replica that is online. The ISR is the assignment, as far as it is live."""
    leader, none = first(p.assigned & p.online(brokers.electable), p.replicas), np.zeros(len(p), np.bool_)
    live = p.assigned & p.online(brokers.live)  # standbys that a new controller has not reached yet follow on
    leads_on = (p.replicas == p.leader) & (leader != p.leader)
    return Elected(leader, live, recovering=none, notify=live & ~leads_on, unclean=none)


def _same_isr(p: Rows, leader: Ints, notify: Bools) -> Elected:
    return Elected(leader, p.in_sync, p.recovering, notify=notify, unclean=np.zeros(len(p), np.bool_))


STRATEGIES: Final[dict[Election, Strategy]] = {
    Election.OFFLINE: offline,
    Election.UNCLEAN: offline,
    Election.REASSIGNMENT: reassignment,
    Election.PREFERRED: preferred,
    Election.CONTROLLED_SHUTDOWN: controlled_shutdown,
    Election.OWNERSHIP: ownership,
}
