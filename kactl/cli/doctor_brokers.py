"""Checks of `kactl doctor` that concern the registered brokers."""

from collections.abc import Iterator
from typing import Final

import anyio
import msgspec

from kactl.admin.broker_listeners import mismatches
from kactl.config.settings import Config
from kactl.errors import KactlError
from kactl.model import Broker

from .doctor_check import FAILED, PASS, Check
from .stores import zookeeper_brokers

_SESSION_MS: Final = 3000


def broker_checks(config: Config) -> Iterator[Check]:
    """Check the listeners of the brokers that are registered in ZooKeeper."""
    store = msgspec.structs.replace(config.store, session_timeout=_SESSION_MS)
    try:
        brokers = anyio.run(zookeeper_brokers, store)
    except KactlError as error:
        yield Check(check="brokers", result=FAILED, value="", detail=str(error))
        return
    yield from _listeners(config, brokers)


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
