"""Broker events: start, stop, controlled shutdown, failure and silence."""

from kactl.messages.admin import UndrainRequested
from kactl.messages.broker import ControlledShutdownRequested, ProducerIdsRequested
from kactl.model import NO_EPOCH, Broker, Endpoint, TopicPartition
from kactl.stores.base import Names
from tests.support.clocks import settle

from .base import BROKERS, SESSION_TIMEOUT_MS, Base


class BrokerHappenings(Base):
    """Random broker events of a storm."""

    async def start(self, broker: int | None = None) -> None:
        away = [each for each in BROKERS if each not in self.sessions]
        if broker is None and not away:
            return
        broker = self.dice.choice(away) if broker is None else broker
        self.note(f"broker {broker} starts")
        session = self.sessions[broker] = await self.store.new_session(SESSION_TIMEOUT_MS)
        # It accepts requests before it has registered, and knows its epoch before any controller can.
        self.fleet.registered(broker, self.store.state.broker_epoch + 1, await self._older(broker))
        await session.register(Broker(broker, 0, (Endpoint("I", f"h{broker}", 9092),)))

    async def _older(self, broker: int) -> frozenset[TopicPartition]:
        """The partitions that have a replica on `broker`, and leadership that is stored and that the controller knows;
        except those being added."""
        held = await self.store.assignments(sorted(self.topics()))
        led = (await self.store.leaderships(Names(held.topics, held.topic, held.partition))).found
        here = {name for name, each in held.take(led).items() if broker in each.replicas and broker not in each.adding}
        if self.active is not None:
            known = map(self.active.partition, map(str, here))
            here &= {view.name for view in known if view is not None and view.leadership is not None}
        return frozenset(here)

    async def stop(self, broker: int | None = None) -> None:
        if broker is None and not self.sessions:
            return
        broker = self.dice.choice(sorted(self.sessions)) if broker is None else broker
        self.note(f"broker {broker} stops")
        self.fleet.gone(broker)
        await self.sessions.pop(broker).close()

    async def bounce(self, broker: int | None = None) -> None:
        if self.sessions:
            broker = self.dice.choice(sorted(self.sessions)) if broker is None else broker
            await self.stop(broker)
            await self.start(broker)

    def _shut_down(self, epoch: int, broker: int) -> None:
        controller = self.dice.choice(self.controllers)
        self.note(f"{controller.node_id} is asked to shut down {broker}, epoch {epoch}")
        self.ask(controller.ask(ControlledShutdownRequested(broker, epoch)))

    async def drain(self) -> None:
        self._shut_down(NO_EPOCH, self.dice.choice(BROKERS))

    async def leave(self) -> None:
        """A broker requests its shutdown: also under an older registration, or before it stops."""
        if self.sessions:
            broker = self.dice.choice(sorted(self.sessions))
            self._shut_down(self.fleet.hosts[broker].epoch - (self.dice.random() < 0.2), broker)
            if self.dice.random() < 0.4:
                await settle()
                await self.stop(broker)

    async def undrain(self) -> None:
        broker = self.dice.choice(BROKERS)
        self.note(f"undrain {broker}")
        self.ask(self.dice.choice(self.controllers).ask(UndrainRequested(broker)))

    async def fail_dir(self) -> None:
        """A directory fails, or an earlier failure is notified again."""
        partitions = sorted(await self.partitions())
        if self.sessions and partitions:
            broker, name = self.dice.choice(sorted(self.sessions)), self.dice.choice(partitions)
            self.note(f"broker {broker}: the directory of {name} fails")
            self.fleet.failed.setdefault(broker, set()).add(str(name))
            self.fleet.hosts[broker].replicas.pop(name, None)
            await self.store.notify_log_dir(broker)

    async def undeletable(self) -> None:
        partitions = sorted(await self.partitions())
        if self.sessions and partitions:
            broker, name = self.dice.choice(sorted(self.sessions)), self.dice.choice(partitions)
            self.note(f"broker {broker} cannot delete {name}")
            self.fleet.undeletable.setdefault(broker, set()).add(str(name))

    async def silence(self) -> None:
        broker = self.dice.choice(BROKERS)
        self.note(f"broker {broker} is silent")
        self.fleet.silent.add(broker)

    async def slow(self) -> None:
        broker = self.dice.choice(BROKERS)
        self.note(f"broker {broker} is slow")
        self.fleet.slow.add(broker)

    async def hear(self) -> None:
        self.note("all brokers answer again")
        self.fleet.silent.clear()
        self.fleet.slow.clear()
        self.fleet.forgetful = 0.0

    async def forget(self) -> None:
        self.note("answers of brokers are lost")
        self.fleet.forgetful = 0.3

    async def producer_ids(self) -> None:
        if self.fleet.hosts:
            host = self.dice.choice(sorted(self.fleet.hosts.values(), key=lambda each: each.id))
            self.ask(self.dice.choice(self.controllers).ask(ProducerIdsRequested(host.id, host.epoch)))
