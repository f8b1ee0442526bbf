"""Who should lead: five pure choices over rows.

* first leader: of the replicas that are online; all of these begin in sync.
* offline: of those that are online and in sync. The ISR keeps who is online. Where that finds nobody, no member of the
  ISR is online, and an unclean election is allowed: of all that are online; the new leader alone is the ISR then.
* reassignment: of the target (replicas that are not to go) that are online and in sync. The ISR stays.
* preferred: the first replica and no other, if it is online and in sync. The ISR stays.
* controlled shutdown: of those in sync that are registered, with a directory that serves, and not shutting down. The
  ISR loses all brokers that are shutting down.

"First" is always first in assignment order. An in-sync member from outside the assignment stays in the ISR while it is
online and can never be elected.

Source: the classic controller's Election and PartitionLeaderElectionAlgorithms.
"""

import dataclasses
import enum
from collections.abc import Callable
from typing import Final

import numpy as np

from kactl.model import NO_LEADER
from kactl.state.rows import Bools, Ints, LiveBrokers, Rows, choose, first, preferred_slot, some


@dataclasses.dataclass(frozen=True, slots=True)
class Elected:
    """A choice. Where `leader` is NO_LEADER nobody was found, and the other columns mean nothing.

    Attributes:
        notify: bool[W, n], the replicas whose brokers are told by LeaderAndIsr.
        unclean: bool[n], the leader was not in sync.
    """

    leader: Ints
    in_sync: Bools
    recovering: Bools
    notify: Bools
    unclean: Bools


class Election(enum.Enum):
    """Why a leader is wanted. UNCLEAN is an admin's word: where nobody in sync is online, anybody online will do."""

    OFFLINE = "offline"
    UNCLEAN = "unclean"
    REASSIGNMENT = "reassignment"
    PREFERRED = "preferred"
    CONTROLLED_SHUTDOWN = "controlled shutdown"


Strategy = Callable[[Rows, LiveBrokers, Bools], Elected]


def first_leader(p: Rows, brokers: LiveBrokers) -> Elected:
    """The first leader of a new partition: everybody who is online begins in sync."""
    eligible = p.assigned & p.online(brokers.live)
    nobody = np.zeros(len(p), np.bool_)
    return Elected(first(eligible, p.replicas), eligible, recovering=nobody, notify=eligible, unclean=nobody)


def nobody_in_sync_online(p: Rows, brokers: LiveBrokers) -> Bools:
    """bool[n]: no member of the ISR is online, so that only an unclean election could help."""
    return ~some(p.in_sync & p.online(brokers.live))


def offline(p: Rows, brokers: LiveBrokers, unclean: Bools) -> Elected:
    """The first online in-sync replica; where `unclean` allows it and nobody in sync is online, any online one."""
    online = p.online(brokers.live)
    candidates = p.assigned & online
    in_sync_online = p.in_sync & online
    clean = first(candidates & p.in_sync, p.replicas)
    fallback = choose(unclean & ~some(in_sync_online), first(candidates, p.replicas), np.int32(NO_LEADER))
    leader = choose(clean != NO_LEADER, clean, fallback)
    is_unclean = (clean == NO_LEADER) & (leader != NO_LEADER)
    return Elected(
        leader,
        in_sync=choose(is_unclean, p.replicas == leader, in_sync_online),
        recovering=p.recovering | is_unclean if brokers.recovery else p.recovering,
        notify=candidates,
        unclean=is_unclean,
    )


def reassignment(p: Rows, brokers: LiveBrokers, unclean: Bools) -> Elected:
    """The first replica of the target that is online and in sync. The ISR stays."""
    target = p.assigned & ~p.removing
    return _same_isr(p, first(target & p.in_sync & p.online(brokers.live), p.replicas), notify=target)


def preferred(p: Rows, brokers: LiveBrokers, unclean: Bools) -> Elected:
    """The first replica of the assignment, if it is online and in sync. The ISR stays."""
    head = preferred_slot(p.assigned)
    return _same_isr(p, first(head & p.in_sync & p.online(brokers.live), p.replicas), notify=p.assigned)


def controlled_shutdown(p: Rows, brokers: LiveBrokers, unclean: Bools) -> Elected:
    """The first in-sync replica that stays. All brokers that are shutting down leave the ISR; dead ones do not."""
    registered = p.online(brokers.registered)
    leaving = brokers.registered[p.replicas] & ~brokers.live[p.replicas]
    leader = first(p.assigned & p.in_sync & registered & ~leaving, p.replicas)
    elected = _same_isr(p, leader, notify=p.assigned & registered)
    return dataclasses.replace(elected, in_sync=p.in_sync & ~leaving)


def _same_isr(p: Rows, leader: Ints, notify: Bools) -> Elected:
    return Elected(leader, p.in_sync, p.recovering, notify=notify, unclean=np.zeros(len(p), np.bool_))


STRATEGIES: Final[dict[Election, Strategy]] = {
    Election.OFFLINE: offline,
    Election.UNCLEAN: offline,
    Election.REASSIGNMENT: reassignment,
    Election.PREFERRED: preferred,
    Election.CONTROLLED_SHUTDOWN: controlled_shutdown,
}
