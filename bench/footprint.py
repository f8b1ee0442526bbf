"""Memory per partition of a controller, measured in a separate process.

    python -m bench.footprint PARTITIONS [sqlite|memory]

Loads a cluster, fails two brokers, and prints JSON, in bytes per partition: `table` is the size of the columns,
`process` the resident memory beyond that of the empty process, and `peak` its maximum. These include the store's
thread, topic names, requests in flight, and memory that the allocator retains."""

import asyncio
import gc
import json
import resource
import sys
from pathlib import Path

from kactl.config.controller_settings import CHUNK_PARTITIONS

from .clusters import Shape
from .election import BROKERS, TOPICS, running


def resident_bytes() -> int:
    """Returns the resident bytes of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


async def main(size: int, kind: str) -> None:
    """Measures and prints."""
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
