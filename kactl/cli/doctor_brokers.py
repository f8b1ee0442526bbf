"""Checks of `kactl doctor` that concern the registered brokers."""

from collections.abc import Iterator
from typing import Final

import anyio
import msgspec

from kactl.admin.broker_listeners import mismatches, without_controller, without_rack
from kactl.config.settings import Config
from kactl.model import Broker
from kactl.model.errors import BrokerUnreachable, KactlError

from .broker_login import broker_credentials
from .doctor_check import FAILED, PASS, WARNING, Check
from .stores import zookeeper_brokers

_SESSION_MS: Final = 3000
_ANSWER_MS: Final = 3000
_ASKED_MAX: Final = 3
_AUTHORIZER: Final = "authorizer.class.name"
# Authorizers whose lists kactl reads; the latter is that of brokers before 2.4.
_KNOWN: Final = ("kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer")


def broker_checks(config: Config) -> Iterator[Check]:
    """Check the listeners of the brokers that are registered in ZooKeeper."""
    store = msgspec.structs.replace(config.store, session_timeout=_SESSION_MS)
    try:
        brokers = anyio.run(zookeeper_brokers, store)
    except KactlError as error:
        yield Check(check="brokers", result=FAILED, value="", detail=str(error))
        return
    yield from _listeners(config, brokers)
    for text in without_controller(brokers, config.kafka):
        yield Check(check="admin clients", result=WARNING, value="no controller", detail=text)
    racks = without_rack(brokers)
    if racks:
        detail = f"{racks}: set broker.rack on all brokers or on none"
        yield Check(check="broker racks", result=FAILED, value="mixed", detail=detail)
    yield from _authorizer(config, brokers)


def _listeners(config: Config, brokers: list[Broker]) -> Iterator[Check]:
    """Compare the protocols of kactl's listeners with those of the brokers."""
    if not config.kafka.listeners:
        return
    found = mismatches(brokers, config.kafka.endpoints)
    for text in found:
        yield Check(check="broker listeners", result=FAILED, value="differ", detail=text)
    if not found:
        yield Check(
            check="broker listeners", result=PASS, value=str(len(brokers)), detail="their protocols are kactl's"
        )


def _authorizer(config: Config, brokers: list[Broker]) -> Iterator[Check]:
    """Check that kactl decides as the brokers do, by the first broker that answers."""
    if not brokers:
        return
    try:
        broker, name = anyio.run(_authorizer_of, config, brokers)
    except KactlError as error:
        yield Check(check="broker authorizer", result=WARNING, value="unknown", detail=str(error))
        return
    yield _judged(config, broker, name)


def _judged(config: Config, broker: int, name: str) -> Check:
    check, kafka = "broker authorizer", config.kafka
    if name and name not in _KNOWN:
        detail = (
            f"broker {broker} has {_AUTHORIZER}={name}, whose decisions kactl does not know: its listeners decide by "
            "access control lists; see docs/security.md"
        )
        return Check(check=check, result=WARNING, value=name, detail=detail)
    if not name and kafka.authorizes:
        detail = f"broker {broker} has none, and kactl's listeners deny what no access control list allows"
        return Check(check=check, result=WARNING, value="none", detail=detail)
    if name and kafka.listeners and not kafka.authorizes:
        detail = f"broker {broker} has {name}, and kactl's listeners allow everything: give them logins"
        return Check(check=check, result=WARNING, value=name, detail=detail)
    return Check(check=check, result=PASS, value=name or "none")


async def _authorizer_of(config: Config, brokers: list[Broker]) -> tuple[int, str]:
    """Returns a broker and its authorizer; empty if it has none.

    Raises:
        BadConfig: a file that the configuration names cannot be read.
        BrokerUnreachable: no broker answers.
    """
    from kactl.config.protocol_level import ProtocolLevel
    from kactl.transports.kafka import KafkaTransport
    from kactl.transports.kafka.broker_config import read_broker_config

    transport = KafkaTransport(
        controller_id=config.node_id,
        level=ProtocolLevel.parse(config.kafka.ibp),
        listener_name=config.kafka.listener_name,
        connect_timeout_ms=_ANSWER_MS,
        request_timeout_ms=_ANSWER_MS,
        credentials=broker_credentials(config),
    )
    failed: KactlError | None = None
    for broker in brokers[:_ASKED_MAX]:
        connection = transport.connect(broker)
        try:
            found = await read_broker_config(connection, [_AUTHORIZER])
        except BrokerUnreachable as error:
            failed = error
        else:
            return broker.id, found.get(_AUTHORIZER) or ""
        finally:
            await connection.close()
    assert failed is not None, "there is a broker"
    raise failed
