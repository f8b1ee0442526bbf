"""All modelled brokers of a cluster."""

from collections.abc import Callable, Iterator

from kactl.model import TopicPartition
from kactl.stores.base import Store
from kactl.testing.loop import SimLoop
from kactl.testing.nodes import Node

from .broker import ModelBroker
from .process import BrokerSettings, Surroundings
from .replica import Replica


class Fleet:
    """Modelled brokers with ids from 1 on.

    Args:
        racks: number of racks, over which the brokers are spread in turn.
    """

    def __init__(
        self,
        count: int,
        loop: SimLoop,
        *,
        racks: int,
        store: Callable[[Node], Store],
        settings: BrokerSettings,
        around: Surroundings,
    ) -> None:
        self.brokers = {
            broker: ModelBroker(
                broker,
                loop,
                rack=None if racks < 2 else f"rack {(broker - 1) % racks}",
                store=store,
                settings=settings,
                around=around,
            )
            for broker in range(1, count + 1)
        }

    def start(self) -> None:
        for broker in self.brokers.values():
            broker.start()

    def running(self) -> list[ModelBroker]:
        """Returns the brokers whose process runs and is not paused, by id."""
        return [broker for broker in self.brokers.values() if broker.is_running]

    def leaders(self) -> Iterator[tuple[ModelBroker, TopicPartition, Replica]]:
        """Returns the replicas of running brokers that are leaders by their own state."""
        for broker in self.running():
            if broker.process is not None:
                for name, replica in broker.process.receiver.replicas.items():
                    if replica.leader == broker.id:
                        yield broker, name, replica
