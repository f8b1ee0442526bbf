import kactl


async def main() -> None:
    async with (
        kactl.Controller(node_id=0) as controller,
        kactl.Participants(3, store=controller.store, hub=controller.hub, session_timeout_ms=500) as brokers,
    ):
        await controller.create_topic("orders", partitions=6, replication_factor=3)
        await brokers.kill(1)
        async for _ in controller.events():
            if all(view.leader > 1 and 1 not in view.isr for view in controller.partitions_of("orders")):
                break
        for view in controller.partitions_of("orders"):
            print(f"{view.name} is led by {view.leader}, in sync are {view.isr}")


kactl.run(main)
