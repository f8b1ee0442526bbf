"""Assembly of servers: store, participants, controller and admin API.

Participants and controller are separate clients of the store, as they would be on separate machines. Participants
register before the controller is elected, so it finds them alive. The controller resigns before they stop, so an
orderly stop changes no leadership.
"""

import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kactl.actors.system import Controller
from kactl.admin.server import Address, serve
from kactl.config.protocol_level import LATEST, ProtocolLevel
from kactl.config.settings import Config
from kactl.decide.messages.events import ControllerState
from kactl.model import Broker
from kactl.model.errors import BadConfig
from kactl.participant.group import Participants
from kactl.runtime.background import Background
from kactl.runtime.clock import Clock
from kactl.runtime.logs import logger
from kactl.runtime.reloading import Reloads
from kactl.runtime.threads import run_in_thread
from kactl.stores.base import Store
from kactl.stores.sqlite import NO_HOLDER, Holder
from kactl.telemetry.gc import Collector
from kactl.telemetry.loop_lag import LoopLag
from kactl.telemetry.past_states import PastStates
from kactl.transports.base import Network, Transport

from .broker_login import broker_credentials
from .listening import listed_as, listener, listening
from .network import BesideKafka, certificates_of, network_of, renewing
from .permission_report import reporting_permissions
from .stores import describe_store, store_factory, zookeeper_store
from .telemetry_export import ServerTelemetry, telemetry_of

if TYPE_CHECKING:
    from kactl.telemetry.state_change_log.snapshots import Snapshot

_LOG = logger(__name__)

# An election may have to wait for a session timeout; the takeover comes in addition.
TAKEOVER_MS = 60_000
# Time by which a standby may be behind.
STANDBY_INTERVAL_MS = 1000


class Server(NamedTuple):
    """A running server."""

    controller: Controller
    participants: Participants | None
    address: Address


@contextlib.asynccontextmanager
async def embedded(
    config: Config, note: Callable[[str], None], *, holder: Holder = NO_HOLDER, clock: Clock | None = None
) -> AsyncIterator[Server]:
    """Run a cluster in this process, stored in SQLite or etcd; its controller is active when the block begins.

    Args:
        note: receives a line for each long wait.
        holder: the lock on the data folder. Sessions that the previous process left under it end at once.
        clock: the system's if None.

    Raises:
        StoreDamaged, BrokerIdTaken, BadConfig: nothing runs; the message names the cause.
        ActionTimedOut: this instance did not become the controller in time.
    """
    session_timeout_ms = config.store.session_timeout
    open_store = store_factory(config, clock=clock, holder=holder)
    reloads = Reloads()
    async with contextlib.AsyncExitStack() as stack:
        telemetry = await stack.enter_async_context(telemetry_of(config))
        network = network_of(config, telemetry.meter_provider, participants=config.participants.count)
        brokers_store = await stack.enter_async_context(open_store())
        taken = await _taken(brokers_store, config.participants.count)
        if taken:
            note(
                f"another process has {taken} in {describe_store(config)}: waiting until its sessions end, "
                f"about {session_timeout_ms / 1000:g} s after it was killed; stop it if it still runs ..."
            )
        participants = await stack.enter_async_context(
            Participants(
                config.participants.count,
                store=brokers_store,
                network=network,
                clock=clock,
                session_timeout_ms=session_timeout_ms,
                # Registrations of a process that was killed last for a session.
                start_timeout_ms=session_timeout_ms + TAKEOVER_MS,
            )
        )
        controller = _controller(
            config,
            store=open_store(),
            network=network,
            clock=clock,
            telemetry=telemetry,
        )
        await stack.enter_async_context(_logging(controller, config))
        await stack.enter_async_context(controller)
        await stack.enter_async_context(renewing(config, network, reloads))
        address = await stack.enter_async_context(
            serve(
                controller,
                config,
                participants=participants,
                render_metrics=telemetry.render_metrics,
                past=_past_states(controller, config),
                certificates=certificates_of(network),
                reloads=reloads,
            )
        )
        await controller.wait_active(timeout_ms=session_timeout_ms + TAKEOVER_MS)
        await stack.enter_async_context(collecting(controller))
        await stack.enter_async_context(telemetry.exporting_metrics())
        yield Server(controller, participants, address)


async def _taken(store: Store, participants: int) -> str:
    """Returns the registrations and role needed here that another process has; empty if none."""
    brokers = [str(broker) for broker in await store.brokers() if 1 <= broker <= participants]
    taken = [f"registered broker {', '.join(brokers)}"] if brokers else []
    if await store.controller() is not None:
        taken.append("the controllership")
    return " and ".join(taken)


@contextlib.asynccontextmanager
async def over_zookeeper(config: Config) -> AsyncIterator[Server]:
    """Run a controller for real brokers; it may be a standby while another instance is active.

    Raises:
        BadConfig, StoreError: nothing runs; the message names the cause.
    """
    from kactl.transports.kafka import KafkaTransport

    level = ProtocolLevel.parse(config.kafka.ibp)
    transport = KafkaTransport(
        controller_id=config.node_id,
        level=level,
        listener_name=config.kafka.listener_name,
        request_timeout_ms=config.controller.controller_socket_timeout,
        credentials=broker_credentials(config),
    )
    own_entry = listed_as(config)
    store = zookeeper_store(config.store, own_entry if level.controller_in_registrations else None)
    reloads = Reloads()
    async with telemetry_of(config) as telemetry:
        network = network_of(config, telemetry.meter_provider) if config.network.listen else None
        certificates = certificates_of(network)
        with listening(config) as sockets:
            controller = _controller(
                config,
                store=store,
                transport=transport if network is None else None,
                network=None if network is None else BesideKafka(network, transport),
                level=level,
                listed_as=own_entry,
                telemetry=telemetry,
            )
            async with (
                _logging(controller, config),
                controller,
                reporting_permissions(store),
                contextlib.nullcontext() if network is None else renewing(config, network, reloads),
                listener(
                    controller,
                    config,
                    sockets,
                    store.access,
                    credentials=transport.credentials,
                    certificates=certificates,
                    reloads=reloads,
                ),
                serve(
                    controller,
                    config,
                    render_metrics=telemetry.render_metrics,
                    past=_past_states(controller, config),
                    certificates=certificates,
                    reloads=reloads,
                ) as address,
                collecting(controller),
                telemetry.exporting_metrics(),
            ):
                yield Server(controller, None, address)


@contextlib.asynccontextmanager
async def collecting(controller: Controller) -> AsyncIterator[None]:
    """Run Python's garbage collection between the controller's events, not during them, and measure the loop's lag."""
    loop = controller.loop
    collector = Collector(
        controller.clock,
        busy=lambda: loop.state is not ControllerState.IDLE or len(loop.inbox) > 0,
        epoch=lambda: controller.cluster.fence.epoch,
    )
    async with Background("the garbage collector") as tasks:
        tasks.start_soon(collector.run, name="garbage collector")
        tasks.start_soon(LoopLag(controller.telemetry, controller.clock).run, name="lag of the event loop")
        yield


@contextlib.asynccontextmanager
async def _logging(controller: Controller, config: Config) -> AsyncIterator[None]:
    """Write the state-change log if it is configured, and continue the event log from it.

    Entered before the controller, so that the log includes the controller's last event, its resignation.
    """
    log_config = config.log
    if not log_config.folder:
        yield
        return
    from kactl.telemetry.state_change_log.keeper import as_json, as_kafka, kept
    from kactl.telemetry.state_change_log.past import read_back
    from kactl.telemetry.state_change_log.segments import open_segments

    folder = Path(log_config.folder)
    if log_config.format == "json":
        try:
            past = await run_in_thread(read_back, folder)
        except OSError as error:
            _LOG.warning("the state-change log in %s cannot be read, so the event log starts empty: %s", folder, error)
        else:
            if past.skipped:
                _LOG.warning("%d lines of the state-change log in %s cannot be read", past.skipped, folder)
            controller.recall(past.events, past.terms, orderly=past.orderly, elections=past.elections)
    try:
        segments = open_segments(folder, bytes_max=log_config.segment_bytes, count_max=log_config.segments)
    except OSError as error:
        raise BadConfig(
            "log.folder", f"{log_config.folder} cannot be used ({error.strerror}): choose another folder"
        ) from None
    lines = as_json if log_config.format == "json" else as_kafka(config.node_id)
    loop = controller.loop
    async with kept(
        controller.history,
        segments,
        lines,
        clock=controller.clock,
        busy=lambda: loop.state is not ControllerState.IDLE,
        snapshot=partial(_snapshot, controller) if log_config.format == "json" else lambda: None,
    ) as lag:
        controller.telemetry.observe({"kactl.event_log.lag": lambda: [(lag(), {})]})
        yield


def _snapshot(controller: Controller) -> "Snapshot | None":
    from kactl.telemetry.state_change_log.snapshots import Snapshot

    if not (controller.loop.is_active and controller.loop.controllership.ready):
        return None
    return Snapshot.of(controller.cluster, seq=controller.history.seq, time_ms=controller.clock.now_ms())


def _past_states(controller: Controller, config: Config) -> PastStates | None:
    """Returns the states that the log holds; None without a log that can be read back."""
    if not config.log.folder or config.log.format != "json":
        return None
    from kactl.telemetry.state_change_log.as_of import LoggedStates

    return LoggedStates(Path(config.log.folder), now_ms=controller.clock.now_ms)


def _controller(
    config: Config,
    *,
    store: Store,
    telemetry: ServerTelemetry,
    network: Network | None = None,
    clock: Clock | None = None,
    transport: Transport | None = None,
    level: ProtocolLevel = LATEST,
    listed_as: Broker | None = None,
) -> Controller:
    settings = config.controller
    return Controller(
        config.node_id,
        store=store,
        transport=transport,
        network=network,
        clock=clock,
        level=level,
        unclean_leader_election=settings.unclean_leader_election,
        delete_topics=settings.delete_topics,
        auto_balance=settings.auto_leader_rebalance,
        participant_balance_ms=int(settings.participant_balance_after),
        new_topic_ids=frozenset(settings.new_topic_ids),
        partitions_max=settings.partitions_max,
        balance_interval_ms=settings.leader_imbalance_check_interval,
        balance_percentage=settings.leader_imbalance_percent,
        standby_interval_ms=STANDBY_INTERVAL_MS if settings.warm_standby else 0,
        parity=settings.parity,
        take_over=settings.takeover,
        listed_as=listed_as,
        controller_ids=config.kafka.controller_ids,
        min_insync_replicas=config.kafka.min_insync_replicas,
        remote_log_storage_system_enable=config.kafka.remote_log_storage_system_enable,
        meter_provider=telemetry.meter_provider,
        tracer_provider=telemetry.tracer_provider,
    )
