"""One process of several does the work; another one takes over when it ends.

python examples/single_leader.py      # as often as you want, in one folder
"""

import anyio

import kactl


async def report(shard: kactl.Shard) -> None:
    print(f"leads with token {shard.token}", flush=True)
    while True:
        shard.check()  # raises as soon as another process may lead
        await anyio.sleep(1)  # the work, whose effects carry shard.token


if __name__ == "__main__":
    kactl.run(kactl.singleton("nightly", report))
