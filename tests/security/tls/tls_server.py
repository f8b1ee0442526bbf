"""Server with TLS as a process of its own: `tls_server KIND LOOP CA CERT KEY`. It prints its port.

KIND is `api` or `network`. It accepts as many connections of one address as of all.
"""

import sys
from pathlib import Path

import anyio

from kactl.testing.contracts.link_support import ContractOffice
from kactl.transports.tcp.limits import Limits
from kactl.transports.tcp.network import TcpNetwork
from kactl.transports.tcp.tls import Tls
from tests.admin.conftest import served


async def api(_: str, cert: str, key: str) -> None:
    async with served(settings={"api.tls.cert": cert, "api.tls.key": key}) as server:
        print(f"port {server.url.rpartition(':')[2]}", flush=True)
        await anyio.sleep_forever()


async def network(ca: str, cert: str, key: str) -> None:
    limits = Limits(handshake_ms=600_000, strangers=1000, strangers_per_address=1000)
    tls = Tls(ca=Path(ca), cert=Path(cert), key=Path(key))
    listening = TcpNetwork(listen="127.0.0.1:0", tls=tls, limits=limits)
    async with listening.controller_side(ContractOffice()):
        assert listening.address is not None
        print(f"port {listening.address.rpartition(':')[2]}", flush=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    kind = {"api": api, "network": network}[sys.argv[1]]
    ca, cert, key = sys.argv[3:]
    anyio.run(kind, ca, cert, key, backend_options={"use_uvloop": sys.argv[2] == "uvloop"})
