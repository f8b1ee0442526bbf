"""Server of the admin API as a process of its own: `small_server LOOP [FREE [PORT]]`. It prints its URL.

LOOP is `asyncio` or `uvloop`. The process may open FREE more files, as if something else in it had taken the others;
"-" does not limit them. PORT is that of an address for probes alone.
"""

import logging
import os
import resource
import sys

import anyio

from kactl.runtime.logs import LineFormatter
from tests.admin.conftest import served


async def main(*given: str) -> None:
    free = given[0] if given else "-"
    port = given[1] if len(given) > 1 else ""
    async with served(settings={"api.probe-listen": f"127.0.0.1:{port}"} if port else None) as server:
        if free != "-":
            used, most = len(os.listdir("/proc/self/fd")), resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + int(free), most))
        print(server.url, flush=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level="WARNING", handlers=[handler])
    anyio.run(main, *sys.argv[2:], backend_options={"use_uvloop": sys.argv[1] == "uvloop"})
