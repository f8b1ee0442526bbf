"""How much memory a controller takes for each partition, in a process of its own.

    python -m bench.footprint PARTITIONS [sqlite|memory]

Loads a cluster, lets two brokers fail, and prints JSON, in bytes for each partition: `table` is what the columns take;
`process` what is resident then, beyond what was before anything was loaded; `peak` the most that ever was. All of it is
in there: the store's thread, names of topics, requests on their way, and what the allocator keeps.
"""

import asyncio
import gc
import json
import resource
import sys
from pathlib import Path

from kactl.actors.handlers.base import CHUNK_PARTITIONS

from .clusters import Shape
from .election import BROKERS, TOPICS, running


def resident_bytes() -> int:
    """Resident bytes of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


async def main(size: int, kind: str) -> None:
    """Measure and print."""
    before = resident_bytes()
    async with running(Shape(size, min(TOPICS, size), BROKERS), kind, CHUNK_PARTITIONS) as bench:
        for broker in (1, 2):
            await bench.fail(broker)
        gc.collect()
        now, peak = resident_bytes(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        taken = {"table": bench.cluster.table.nbytes, "process": now - before, "peak": peak - before}
    print(json.dumps({what: value / size for what, value in taken.items()}))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "sqlite"))
