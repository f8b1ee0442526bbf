"""Parts of a participant that depend on which arguments are given: its application, its network, its sessions."""

from collections.abc import Sequence
from typing import NamedTuple

from kactl.decide.machines.remote_sessions import CLOCK_DRIFT_MAX
from kactl.decide.messages import arguments
from kactl.model.errors import BadRequest
from kactl.runtime.clock import Clock
from kactl.stores.base import Store
from kactl.transports.base import ParticipantNetwork

from .handlers.hosting import HandlerHosting, MakeHandler
from .leases.terms import LeaseConfig
from .leases.watchdog import make_watchdog
from .listener import Listener
from .sessions import REMOTE_TIMEOUT_MS, STORE_TIMEOUT_MS, ControllerSessions, SessionSource, StoreSessions


class Connections(NamedTuple):
    """How a participant reaches its controllers and its store.

    Attributes:
        controllers: addresses, in addition to those that the network knows.
    """

    network: ParticipantNetwork
    controllers: tuple[str, ...]
    sessions: SessionSource


def connections(
    *,
    store: Store | None,
    hub: ParticipantNetwork | None,
    network: ParticipantNetwork | None,
    controllers: Sequence[str],
    session_timeout_ms: int | None,
    lease: LeaseConfig,
    clock: Clock,
) -> Connections:
    """Returns the connections of a participant.

        store and hub             session with the store, in one process
        store and network         session with the store, requests over the network
        hub                       session with the active controller, in one process
        network, controllers      session with the active controller

    Raises:
        BadRequest: another combination.
    """
    if hub is not None and network is not None:
        raise BadRequest("network", "is given beside hub: give one of them")
    if hub is not None and controllers:
        raise BadRequest("controllers", "are given beside hub, the network of one process: give network= instead")
    chosen = network if hub is None else hub
    arguments.implements(chosen, ParticipantNetwork, "network")
    if chosen is None:
        raise BadRequest("network", "is missing: give hub=controller.hub for one process, or a network")
    if isinstance(controllers, str):
        raise BadRequest("controllers", f"is one text, {controllers!r}: give a list of addresses")
    if store is not None:
        arguments.implements(store, Store, "store")
        timeout_ms = STORE_TIMEOUT_MS if session_timeout_ms is None else session_timeout_ms
        return Connections(chosen, tuple(controllers), StoreSessions(store, timeout_ms))
    if lease.clock_drift > CLOCK_DRIFT_MAX:
        raise BadRequest(
            "lease.clock_drift",
            f"{lease.clock_drift} is too much for a session with the controller, which allows for a third: give a "
            "store, or correct the clocks",
        )
    timeout_ms = REMOTE_TIMEOUT_MS if session_timeout_ms is None else int(session_timeout_ms)
    return Connections(chosen, tuple(controllers), ControllerSessions(timeout_ms))


def hosting(
    handler: MakeHandler | None,
    listener: Listener | None,
    *,
    lease: LeaseConfig,
    clock: Clock,
    handlers_parallel: int,
    transition_timeout_ms: float,
) -> HandlerHosting | None:
    """Returns the host of the handlers; None for an application with a listener.

    Raises:
        BadRequest: both a handler and a listener are given, or a watchdog without a handler.
    """
    if handler is None:
        if lease.watchdog != "off":
            raise BadRequest("lease.watchdog", "it needs a handler, whose calls it watches")
        return None
    if listener is not None:
        raise BadRequest("handler", "a participant has a handler or a listener, not both")
    return HandlerHosting(
        handler,
        clock=clock,
        handlers_parallel=handlers_parallel,
        transition_timeout_ms=transition_timeout_ms,
        watchdog=make_watchdog(lease.watchdog, clock.lease_ns),
    )
