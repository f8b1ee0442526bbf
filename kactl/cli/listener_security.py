"""Security of the Kafka listeners, by the configuration: certificates, users and access control lists."""

import asyncio
import functools
import logging
import ssl
from typing import TYPE_CHECKING, Final

from kactl.config.kafka_settings import KafkaConfig
from kactl.model.errors import StoreError
from kactl.runtime.conditions import Conditions
from kactl.runtime.logs import logger
from kactl.security.access import AclAuthorizer, Acls, BrokerPrincipals, PrincipalRules
from kactl.security.tls.server_tls import ServerTls
from kactl.transports.kafka.listener import ListenerSecurity
from kactl.transports.kafka.listener.authentication import Authentication, Users, new_pepper

if TYPE_CHECKING:
    from kactl.stores.zookeeper.access import AccessRecords

log = logger(__name__)

# How often the notices about changes of the lists are looked at.
_INTERVAL_S: Final = 2.0


def listener_security(
    kafka: KafkaConfig,
    access: "AccessRecords | None",
    tls: tuple[ServerTls, ...] | None = None,
    *,
    users: Users | None = None,
) -> tuple[dict[str, ListenerSecurity], AclAuthorizer | None]:
    """Returns the security of each listener, and what decides about requests; None if nothing does.

    Args:
        tls: as `listener_tls` returns it.
        users: those of the cluster if None.

    Raises:
        BadConfig: a file that the configuration names cannot be used.
    """
    authorizer = None
    if kafka.authorizes:
        principals = kafka.broker_principals
        brokers = BrokerPrincipals(
            {int(broker): name for broker, name in principals.names.items()}, principals.pattern or None
        )
        authorizer = AclAuthorizer(
            super_users=kafka.super_users,
            brokers=brokers,
            if_no_acl=kafka.allow_everyone_if_no_acl_found,
            acls=Acls({}, {}) if kafka.authorizer == "super-users" else None,
        )
    rules = PrincipalRules(kafka.tls.principal_rules)
    # A certificate that no listener presents is checked, too.
    tls = listener_tls(kafka) if tls is None else tls
    users = access if users is None else users
    security, pepper = {}, new_pepper()
    for endpoint in kafka.endpoints:
        protocol = kafka.protocols.get(endpoint.listener, "PLAINTEXT")
        authentication = Authentication(
            protocol,
            mechanisms=kafka.sasl_mechanisms,
            users=users,
            lifetime_ms=kafka.reauth,
            rules=rules,
            pepper=pepper,
        )
        # Clients of SASL_SSL are asked for no certificate: their login is their identity.
        if protocol.endswith("SSL"):
            encrypted = tls[protocol == "SSL"]
            context = functools.partial(_context_of, encrypted)
            security[endpoint.listener] = ListenerSecurity(authentication, context, authorizer, encrypted.accepts)
        else:
            security[endpoint.listener] = ListenerSecurity(authentication, authorizer=authorizer)
    return security, authorizer


def _context_of(tls: ServerTls) -> ssl.SSLContext:
    return tls.context


def listener_tls(kafka: KafkaConfig) -> tuple[ServerTls, ...]:
    """Returns the TLS of listeners that ask clients for no certificate, and of those that do if the configuration wants
    any; none without a certificate.

    Raises:
        BadConfig: a file cannot be used.
    """
    return tuple(_server_tls(kafka, verifies=verifies) for verifies in (False, True)) if kafka.tls.cert else ()


def _server_tls(kafka: KafkaConfig, *, verifies: bool) -> ServerTls:
    tls = kafka.tls
    if not verifies or tls.client_auth == "none":
        return ServerTls("kafka.tls", cert=tls.cert, key=tls.key, protocols=())
    return ServerTls(
        "kafka.tls",
        cert=tls.cert,
        key=tls.key,
        client_auth=tls.client_auth,
        client_ca=tls.client_ca,
        crl=tls.crl,
        protocols=(),
    )


class AclFollower:
    """Keeps an authorizer's lists up to date. While they cannot be read there are none."""

    def __init__(self, authorizer: AclAuthorizer, access: "AccessRecords") -> None:
        self._authorizer = authorizer
        self._access = access
        self._version: tuple[int, ...] = ()
        self._conditions = Conditions(log)

    async def run(self) -> None:
        """Follow changes until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_INTERVAL_S)

    async def look(self) -> None:
        """Read the lists if they have changed."""
        try:
            version = await self._access.acl_version()
            if self._authorizer.acls is None or version != self._version:
                self._authorizer.acls = await self._access.acls()
                self._version = version
        except StoreError as error:
            text = "the access control lists cannot be read, only super users and brokers pass: %s"
            self._conditions.add("", logging.WARNING, text, error)
            self._authorizer.acls = None
        else:
            self._conditions.end("", "the access control lists can be read again")


class OpenRelayGuard:
    """Whether requests may be relayed unread: not in a cluster whose brokers authorize.

    A broker would decide about a relayed request by kactl's identity and address. Brokers with an authorizer keep
    nodes for its lists, also before there is a list.

    Args:
        access: None in clusters without such nodes.

    Attributes:
        is_open: False also until the nodes have been looked for.
    """

    def __init__(self, access: "AccessRecords | None") -> None:
        self._access = access
        self._has_authorizer = False
        self.is_open = access is None

    async def run(self) -> None:
        """Follow changes until an authorizer is found."""
        while not self._has_authorizer and self._access is not None:
            await asyncio.sleep(_INTERVAL_S)
            await self.look()

    async def look(self) -> None:
        """Read whether there is an authorizer. A store that does not respond changes nothing."""
        if self._access is None or self._has_authorizer:
            return
        try:
            self._has_authorizer = await self._access.has_authorizer()
            self.is_open = not self._has_authorizer
        except StoreError as error:
            log.debug("whether the brokers have an authorizer cannot be read: %s", error)
        if self._has_authorizer:
            log.warning(
                "requests are no longer relayed to brokers: the cluster has access control lists (/kafka-acl-changes "
                "exists), and brokers would apply kactl's rights to every client. Set kafka.protocols to SASL_SSL and "
                'kafka.relay to "checked", or let clients connect to the brokers'
            )
