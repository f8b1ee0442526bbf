"""Orders to one replica, and the states of its handler."""

import dataclasses
import enum

from kactl.decide.messages.control import OrderReason
from kactl.model import Endpoint
from kactl.participant.leases.leader import Leader
from kactl.participant.leases.token import FencingToken

from .phase import Ticket


class HandlerState(enum.Enum):
    """State of the handler of one partition.

    IDLE ──order──▶ PREPARING ──▶ WAITING ──lease──▶ LEADING ──newer order, end of the lease──▶ ENDING
             ▲        │                                 │                                         │
             │        └──────────failure────────────────┴──▶ BACKING_OFF ──third failure──▶ IDLE  ├──▶ the next order
             └──────────────────────the same order─────────────────┘                              └──▶ STUCK

    FOLLOWING and STOPPING are alike, without the wait. STOPPING during a back-off is followed by BACKING_OFF, and so is
    STUCK when the call has ended after all. A deletion that has failed is made again before the handler leads or
    follows. Each state but STUCK ends by itself, and STUCK with its call or its process.
    """

    IDLE = "idle"
    PREPARING = "preparing"
    WAITING = "waiting"  # prepared to lead, without a lease or a release
    LEADING = "leading"
    FOLLOWING = "following"
    STOPPING = "stopping"
    ENDING = "ending"  # a cancelled call has not ended yet
    BACKING_OFF = "backing off"  # no order to lead is carried out until the delay is over
    STUCK = "stuck"  # a cancelled call did not end in time; no other call is made before it has ended


@dataclasses.dataclass(slots=True)
class Lead:
    """Lead a partition.

    Attributes:
        leader_epoch: the newest one of the leadership; that of the token is the first one.
        reason: of the order.
        held: an earlier leader may still act; `lead` is called after the release.
        continues: no other broker has led since the order before, if that was to lead.
        raises: the leadership goes on under the token of this order, and not under its own one.
        begun: the calls of earlier orders have ended, or this one was refused.
        leader: what the calls of the handler receive.
    """

    ticket: Ticket
    token: FencingToken
    isr: tuple[int, ...]
    reason: OrderReason
    held: bool = False
    continues: bool = False
    raises: bool = False
    begun: bool = False
    leader: Leader | None = None
    leader_epoch: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.leader_epoch = self.token.leader_epoch

    def update(self, *, leader_epoch: int, isr: tuple[int, ...], token: FencingToken | None = None) -> None:
        """Note the present ISR, of a leadership that goes on, and a higher token if it gets one."""
        self.leader_epoch, self.isr, self.token = leader_epoch, isr, token or self.token
        if self.leader is not None:
            self.leader._token = self.token
            self.leader.leader_epoch, self.leader.isr = leader_epoch, isr


@dataclasses.dataclass(slots=True)
class Follow:
    """Follow a leader; None if there is none.

    Attributes:
        endpoint: where other participants connect to the leader's program; None if they cannot.
        awaited: another broker waits for the end of an earlier leadership.
        begun: as in `Lead`.
    """

    ticket: Ticket
    leader: int | None
    leader_epoch: int
    awaited: bool = False
    endpoint: Endpoint | None = None
    begun: bool = False


@dataclasses.dataclass(slots=True)
class Stop:
    """Stop serving the replica.

    Attributes:
        silent: do not call the handler, as if the process had been killed.
        ends_life: the registration ends, so that no other order follows under it.
        begun: as in `Lead`.
    """

    ticket: Ticket
    leader_epoch: int
    deleted: bool = False
    silent: bool = False
    ends_life: bool = False
    begun: bool = False


Order = Lead | Follow | Stop
