"""Controlled shutdown: before a broker stops, it requests that the controller moves its leaderships.

Source: KafkaServer.controlledShutdown.
"""

from collections.abc import Callable
from typing import Final, Protocol

from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.messages.broker import ControlledShutdown
from kactl.model import NO_EPOCH, TopicPartition
from kactl.model.errors import KactlError
from kactl.runtime.clock import Clock
from kactl.runtime.logs import logger

log = logger(__name__)

# Kafka's default (controlled.shutdown.max.retries), which counts the first attempt too.
ATTEMPTS: Final = 3
# Partitions that are listed in a log line.
_NAMED_MAX: Final = 5
# Kafka's brokers wait for five seconds. In one process the next controller takes over in less time.
BACKOFF_MS: Final = 500
# Pause while the next owner of a partition prepares.
PREPARING_MS: Final = 100


class Controller(Protocol):
    """Client of the active controller, which is looked up for each attempt."""

    async def ask(self, request: ControllerRequest) -> list[TopicPartition]: ...


async def controlled_shutdown(
    broker: int,
    *,
    epoch: Callable[[], int],
    controller: Controller,
    clock: Clock,
    attempts: int = ATTEMPTS,
    backoff_ms: float = BACKOFF_MS,
    is_owned: Callable[[TopicPartition], bool] = lambda name: False,
    limit_ms: float = 0,
) -> bool:
    """Request the shutdown until the broker leads no partition, at most `attempts` times.

    While next owners of partitions prepare, more attempts are made.

    Never raises a failure of the controller: the broker stops anyway.

    Args:
        epoch: returns the epoch of the broker's registration; NO_EPOCH if the broker is not registered any more and
            leads nothing.
        is_owned: whether a partition is of an ownership topic.
        limit_ms: how long next owners may prepare.

    Returns:
        whether the broker leads no partition any more that another broker could lead.
    """
    remaining: list[TopicPartition] = []
    until_ms, attempt, prepares = clock.monotonic_ms() + limit_ms, 0, False
    while attempt < attempts:
        if prepares or attempt:
            await clock.sleep_ms(PREPARING_MS if prepares else backoff_ms)
        prepares, attempt = False, attempt + 1
        registered = epoch()
        if registered == NO_EPOCH:
            return False
        try:
            remaining = await controller.ask(ControlledShutdown(broker, registered))
        except KactlError as rejected:
            log.info("the controller did not move the leaderships of broker %d: %s", broker, rejected)
            continue
        except Exception:
            # A bug of a controller in this process must not prevent the shutdown.
            log.exception("the controller did not move the leaderships of broker %d", broker)
            continue
        if not remaining:
            return True
        if any(map(is_owned, remaining)) and clock.monotonic_ms() < until_ms:
            prepares, attempt = True, attempt - 1
            continue
        log.info("broker %d still leads %d partitions, such as %s", broker, len(remaining), remaining[0])
    if remaining:
        named = ", ".join(map(str, remaining[:_NAMED_MAX])) + (", ..." if len(remaining) > _NAMED_MAX else "")
        log.warning("broker %d stops while it still leads %d partitions: %s", broker, len(remaining), named)
    elif attempts:
        log.warning("broker %d stops, and no controller has moved its leaderships", broker)
    return False
