"""Server of the admin API as a process of its own: `small_server LOOP [FREE]`. It prints its URL.

LOOP is `asyncio` or `uvloop`. The process may open FREE more files, as if something else in it had taken the others.
"""

import logging
import os
import resource
import sys
from collections.abc import Sequence

import anyio

from kactl.runtime.logs import LineFormatter
from tests.admin.conftest import served


async def main(free: Sequence[str]) -> None:
    async with served() as server:
        if free:
            used, most = len(os.listdir("/proc/self/fd")), resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + int(free[0]), most))
        print(server.url, flush=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level="WARNING", handlers=[handler])
    anyio.run(main, sys.argv[2:], backend_options={"use_uvloop": sys.argv[1] == "uvloop"})
