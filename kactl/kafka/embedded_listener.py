"""Kafka listeners of a program that embeds a controller.

The program makes the TLS contexts, and decides about logins and requests by its own functions. As in kactl's own
server, a listener that other hosts can reach has encryption, authentication and authorization, or the consent of the
program by its name.
"""

import contextlib
import ssl
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from kactl.actors.system import Controller
from kactl.config.values import ENDPOINT
from kactl.decide.messages import arguments
from kactl.model import NO_EPOCH, Broker, Endpoint
from kactl.model.errors import BadRequest
from kactl.runtime.listening import is_local
from kactl.runtime.logs import logger
from kactl.runtime.threads import run_in_thread
from kactl.transports.kafka.listener import BoundListener, KafkaListener, ListenerSecurity, ListenerSettings
from kactl.transports.kafka.listener.limits import Limits
from kactl.transports.kafka.listener.overrides import by_address

from .own_controller import ListenerController

log = logger(__name__)

# Before the name of a listener in `allow_insecure`, as in the configuration of kactl's own server.
_INTERFACE: Final = "kafka."


@contextlib.asynccontextmanager
async def listener(
    controller: Controller,
    listeners: Mapping[str, ListenerSecurity],
    *,
    advertised: Collection[str] = (),
    partitions: int = 1,
    replication_factor: int = 1,
    allow_insecure: Collection[str] = (),
    max_connections: int = Limits().connections_max,
    max_connections_per_ip: int = Limits().connections_per_address_max,
    max_connections_per_ip_overrides: Mapping[str, int] = MappingProxyType({}),
) -> AsyncIterator[Mapping[str, Endpoint]]:
    """Serve brokers, clients and tools over Kafka's protocol for as long as the block lasts.

    Requests that concern brokers, such as those for groups, are not relayed to them. Attempts and denials are events of
    the controller; the listeners' metrics are its metrics. A program has one block for all listeners of a controller:
    their limits of connections and memory are shared.

    Args:
        controller: has been entered.
        listeners: how each one identifies its peers and decides about requests, by `NAME://HOST:PORT`. Port 0 is a
            free one.
        advertised: in the same form, the addresses by which clients reach listeners, if they are others.
        partitions, replication_factor: the defaults of topics that are created.
        allow_insecure: listeners that other hosts may reach although they are open: `kafka.NAME`.
        max_connections: of all listeners together.
        max_connections_per_ip: of one address that is not a broker's; 0 admits only addresses with overrides.
        max_connections_per_ip_overrides: the same for single addresses or host names, which are looked up now.

    Yields:
        The addresses of the listeners, by their names.

    Raises:
        BadRequest: an argument cannot be used, or a listener is open without consent. Nothing has been opened.
        BadConfig: an address cannot be listened on, or the name of an override has no address.
    """
    endpoints = _endpoints(listeners)
    for text, endpoint in endpoints.items():
        _check_security(text, endpoint, listeners[text])
    # It looks up names.
    await run_in_thread(_check_consent, endpoints, listeners, allow_insecure)
    listed = {endpoint.listener: endpoint for endpoint in map(_endpoint, advertised)}
    names = {endpoint.listener for endpoint in endpoints.values()}
    unknown = next((name for name in listed if name not in names), None)
    if unknown is not None:
        raise BadRequest("advertised", f"{unknown!r} is not the name of a listener: use {_quoted(names)}")
    arguments.whole(partitions, "partitions")
    arguments.whole(replication_factor, "replication_factor")
    limits = Limits(
        connections_max=arguments.whole(max_connections, "max_connections"),
        connections_per_address_max=arguments.whole(max_connections_per_ip, "max_connections_per_ip"),
        connections_overrides=await by_address(max_connections_per_ip_overrides),
    )
    with contextlib.ExitStack() as stack:
        sockets = {
            each.listener: stack.enter_context(await run_in_thread(BoundListener, each)) for each in endpoints.values()
        }
        addresses = {
            each.listener: Endpoint(
                each.listener,
                each.host,
                sockets[each.listener].port,
                listeners[text].authentication.protocol,
            )
            for text, each in endpoints.items()
        }
        settings = ListenerSettings(
            partitions=partitions,
            replication_factor=replication_factor,
            listed_as=Broker(controller.node_id, NO_EPOCH, tuple((addresses | listed).values())),
            limits=limits,
            security={endpoint.listener: listeners[text] for text, endpoint in endpoints.items()},
            relays=False,
            audit=controller.attempted,
        )
        async with KafkaListener(ListenerController(controller), sockets, settings) as serving:
            controller.telemetry.observe(serving.counters.readings())
            yield MappingProxyType(addresses)


def _endpoint(text: str) -> Endpoint:
    matched = ENDPOINT.fullmatch(arguments.text(text, "listeners"))
    if matched is None:
        raise BadRequest("listeners", f"{text!r} is no address of a listener: write NAME://HOST:PORT")
    return Endpoint(matched["listener"], matched["ipv6"] or matched["name"], int(matched["port"]))


def _endpoints(listeners: Mapping[str, ListenerSecurity]) -> dict[str, Endpoint]:
    found = {text: _endpoint(text) for text in listeners}
    names = [endpoint.listener for endpoint in found.values()]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadRequest("listeners", f"two listeners are named {twice!r}: give each a name of its own")
    if not found:
        raise BadRequest("listeners", "is empty: give at least one NAME://HOST:PORT")
    return found


def _check_security(text: str, endpoint: Endpoint, security: ListenerSecurity) -> None:
    """Raises BadRequest for parts that contradict each other."""
    authentication = security.authentication
    if authentication.protocol.endswith("SSL") != (security.tls is not None):
        need = "needs a TLS context" if security.tls is None else "has none: make it SSL or SASL_SSL"
        raise BadRequest("listeners", f"{text} is {authentication.protocol}, which {need}")
    if authentication.demands_login and not authentication.mechanisms:
        raise BadRequest(
            "listeners",
            f"{text} offers no mechanism for logins: name one in mechanisms; PLAIN and OAUTHBEARER need SASL_SSL, and "
            "OAUTHBEARER needs validate_token",
        )


def _check_consent(
    endpoints: Mapping[str, Endpoint], listeners: Mapping[str, ListenerSecurity], allowed: Collection[str]
) -> None:
    """Raises BadRequest for a listener that is open without consent, and for consent without a reason."""
    if isinstance(allowed, str):
        raise BadRequest("allow_insecure", f'{allowed!r} is one text: give a list, such as ["{_INTERFACE}CLIENTS"]')
    weak = {
        f"{_INTERFACE}{endpoint.listener}": f"{text} can be reached by others and has no {' and no '.join(missing)}"
        for text, endpoint in endpoints.items()
        if not is_local(endpoint.host) and (missing := tuple(_missing(listeners[text])))
    }
    for name in allowed:
        if name not in weak:
            raise BadRequest(
                "allow_insecure", f"{name!r} is no open listener: remove it, so that a later mistake is noticed"
            )
    for name, reason in weak.items():
        if name not in allowed:
            remedy = f'give its security, listen on 127.0.0.1, or name "{name}" in allow_insecure'
            raise BadRequest("listeners", f"{reason}: {remedy}")
        log.warning("%s", reason)


def _missing(security: ListenerSecurity) -> Iterator[str]:
    if security.tls is None:
        yield "TLS"
    certified = (context := security.context) is not None and context.verify_mode is not ssl.CERT_NONE
    if not security.authentication.demands_login and not certified:
        yield "authentication"
    if security.authorizer is None:
        yield "authorizer"


def _quoted(names: Collection[str]) -> str:
    return ", ".join(f'"{name}"' for name in sorted(names))
