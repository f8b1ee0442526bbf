"""All brokers of a cluster."""

from collections.abc import Callable

from .base import SimulatedBroker


class Fleet:
    """Brokers with ids from 1 on.

    Args:
        make: returns a broker with an id and a name.

    Attributes:
        twins: brokers that were started although another one with their id runs, by id.
        doubled: all brokers that were started so in the run, also those that have ended since, by id.
    """

    def __init__(self, count: int, make: Callable[[int, str], SimulatedBroker]) -> None:
        self._make = make
        self.brokers = {number: make(number, f"broker {number}") for number in range(1, count + 1)}
        self.twins: dict[int, SimulatedBroker] = {}
        self.doubled: dict[int, list[SimulatedBroker]] = {}

    def start_twin(self, number: int) -> SimulatedBroker:
        """Start another broker with the id of one, at an address of its own, with an empty disk."""
        twin = self.twins[number] = self._make(number, f"twin {number}")
        self.doubled.setdefault(number, []).append(twin)
        twin.start()
        return twin

    def end_twins(self) -> None:
        """Kill all twins."""
        for twin in self.twins.values():
            twin.kill()
        self.twins.clear()

    def running(self) -> list[SimulatedBroker]:
        """Returns the brokers with a process that runs and is not paused, by id."""
        return [broker for broker in self.brokers.values() if broker.is_running]
