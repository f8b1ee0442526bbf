import anyio

import kactl


async def main() -> None:
    async with (
        kactl.Controller(node_id=0) as controller,
        kactl.Participants(3, store=controller.store, hub=controller.hub, session_timeout_ms=500) as brokers,
    ):
        await controller.create_topic("orders", partitions=6, replication_factor=3)
        orphans = {view.partition for view in controller.partitions_of("orders") if view.leader == 1}
        await brokers.kill(1)
        async for event in controller.events(kinds={"partition"}):
            if isinstance(event, kactl.PartitionEvent) and event.leader != 1:
                print(f"{event.topic}-{event.partition} is led by {event.leader}, in sync are {event.isr}")
                orphans.discard(event.partition)
            if not orphans:
                break


anyio.run(main)
