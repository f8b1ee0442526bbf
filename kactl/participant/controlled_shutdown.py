"""What a broker does before it stops: it asks the controller to lead elsewhere what it leads.

Source: KafkaServer.controlledShutdown.
"""

from collections.abc import Callable
from typing import Final, Protocol

from kactl.clock import Clock
from kactl.errors import KactlError
from kactl.messages.admin import ControllerRequest
from kactl.messages.broker import ControlledShutdownRequested
from kactl.model import NO_EPOCH, TopicPartition
from kactl.runtime.logs import logger

log = logger(__name__)

# Kafka's default (controlled.shutdown.max.retries), which counts the first try too.
ATTEMPTS: Final = 3
# Kafka's brokers wait for five seconds. In one process a controller that goes is followed by the next within less.
BACKOFF_MS: Final = 500


class Controller(Protocol):
    """The way to whoever is the controller; found anew for each try."""

    async def ask(self, asked: ControllerRequest) -> list[TopicPartition]: ...


async def hand_over(
    broker: int,
    *,
    epoch: Callable[[], int],
    controller: Controller,
    clock: Clock,
    attempts: int = ATTEMPTS,
    backoff_ms: float = BACKOFF_MS,
) -> bool:
    """Ask until nothing is left that this broker leads, or `attempts` times. Never fails: it stops anyway.

    Args:
        epoch: of its registration, at each call; NO_EPOCH once it has none, and nothing to hand over.

    Returns:
        whether it leads nothing any more that somebody else could lead.
    """
    for attempt in range(attempts):
        if attempt:
            await clock.sleep_ms(backoff_ms)
        registered = epoch()
        if registered == NO_EPOCH:
            break
        try:
            remaining = await controller.ask(ControlledShutdownRequested(broker, registered))
        except KactlError as refused:
            log.info("broker %d could not hand over what it leads: %s", broker, refused)
            continue
        except Exception:
            # A bug of a controller in this process is no reason to stay.
            log.exception("broker %d could not hand over what it leads", broker)
            continue
        if not remaining:
            return True
        log.info("broker %d still leads %d partitions, such as %s", broker, len(remaining), remaining[0])
    if attempts:
        log.warning("broker %d stops without having handed over all that it leads", broker)
    return False
