"""Transport of simulated controllers: requests to brokers over the simulated network."""

import itertools
from typing import Any, Final, NamedTuple

from kactl.decide.messages.control import Request
from kactl.model import Broker
from kactl.model.errors import BrokerUnreachable

from .history import History
from .network import Network, Unreachable

# Name of the node of a broker, without its id.
BROKER: Final = "broker"


class ControlMessage(NamedTuple):
    """A control request on its way to a broker; a repeated request has another number."""

    number: int
    request: Request


# Hosts of brokers that were started with the id of another one begin with it.
TWIN: Final = "twin"


def host_of(address: str) -> str:
    """Returns the host in the registration of a broker from the name of its nodes."""
    return address.replace(" ", "-")


def address_of(broker: Broker, *, name: str = BROKER) -> str:
    """Returns the name of a broker's nodes from its registration.

    Args:
        name: of the nodes of brokers with an id of their own.
    """
    hosts = [endpoint.host for endpoint in broker.endpoints]
    return hosts[0].replace("-", " ") if hosts and hosts[0].startswith(TWIN) else f"{name} {broker.id}"


class SimulatedTransport:
    """Transport of one controller over the simulated network; see `kactl.transports.base.Transport`.

    Args:
        numbers: of the messages, unique in the run.
        timeout_ms: the time limit for a response.
        broker_name: name of the node of a broker, without its id.
    """

    def __init__(
        self,
        network: Network,
        history: History,
        *,
        numbers: "itertools.count[int]",
        timeout_ms: float,
        broker_name: str = BROKER,
    ) -> None:
        self.broker_name = broker_name
        self.network = network
        self.history = history
        self.numbers = numbers
        self.timeout_ms = timeout_ms

    def connect(self, broker: Broker) -> "BrokerConnection":
        return BrokerConnection(self, broker)


class BrokerConnection:
    """Connection of a controller to a broker; see `kactl.transports.base.Connection`."""

    def __init__(self, transport: SimulatedTransport, broker: Broker) -> None:
        self._transport = transport
        self._broker = broker
        self._is_closed = False

    async def deliver(self, request: Request) -> Any:
        broker, history = self._broker.id, self._transport.history
        if self._is_closed:
            raise BrokerUnreachable(broker, "the connection was closed")
        message = ControlMessage(next(self._transport.numbers), request)
        history.record(
            "req.send", message=message.number, broker=broker, broker_epoch=request.broker_epoch,
            what=type(request).__name__, controller=request.controller_id, controller_epoch=request.controller_epoch,
        )  # fmt: skip
        try:
            response = await self._transport.network.call(
                address_of(self._broker, name=self._transport.broker_name),
                message,
                timeout_ms=self._transport.timeout_ms,
            )
        except (Unreachable, BrokerUnreachable) as failed:
            history.record("req.lost", message=message.number)
            raise BrokerUnreachable(broker, str(failed)) from None
        history.record("req.reply", message=message.number)
        return response

    async def close(self) -> None:
        self._is_closed = True
