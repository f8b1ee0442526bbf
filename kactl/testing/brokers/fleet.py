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

    Attributes:
        twins: brokers that were started although another one with their id runs, by id.
        doubled: ids of which there were two at a time.
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
        def broker(number: int, name: str | None = None) -> ModelBroker:
            rack = None if racks < 2 else f"rack {(number - 1) % racks}"
            return ModelBroker(number, loop, rack=rack, store=store, settings=settings, around=around, name=name)

        self._broker = broker
        self.brokers = {number: broker(number) for number in range(1, count + 1)}
        self.twins: dict[int, ModelBroker] = {}
        self.doubled: set[int] = set()

    def start_twin(self, number: int) -> ModelBroker:
        """Start another broker with the id of one, at an address of its own, with an empty disk."""
        twin = self.twins[number] = self._broker(number, f"twin {number}")
        self.doubled.add(number)
        twin.start()
        return twin

    def end_twins(self) -> None:
        """Kill all twins."""
        for twin in self.twins.values():
            twin.kill()
        self.twins.clear()

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
