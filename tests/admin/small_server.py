"""Server of the admin API as a process of its own: `small_server LOOP [PORT]`. It prints its URL.

LOOP is `asyncio` or `uvloop`. PORT is that of an address for probes alone.
"""

import logging
import sys

import anyio

from kactl.runtime.logs import LineFormatter
from tests.admin.conftest import served


async def main(*port: str) -> None:
    async with served(settings={"api.probe-listen": f"127.0.0.1:{port[0]}"} if port else None) as server:
        print(server.url, flush=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level="WARNING", handlers=[handler])
    anyio.run(main, *sys.argv[2:], backend_options={"use_uvloop": sys.argv[1] == "uvloop"})
