"""A real ZooKeeper with TLS on a second port, SASL users, and identities of client certificates.

Settings as in ZooKeeper's administrator's guide; certificates are PEM files that are made for the test.
"""

import base64
import hashlib
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from .certificates import Authority, Signed
from .processes import free_port
from .zookeeper_server import ZooKeeperServer

USER: Final = "kafka"
PASSWORD: Final = 'pass"wörd, of kafka'
OTHER_USER: Final = "stranger"
OTHER_PASSWORD: Final = "another"

# Of scheme digest: may do everything.
SUPERUSER: Final = "super:user"

_PROVIDERS: Final = "org.apache.zookeeper.server.auth"


class SecureZooKeeper(ZooKeeperServer):
    """A server with the users USER and OTHER_USER. `connect` is its clear-text port, `secure_connect` the one with TLS.

    Args:
        require_login: requests of connections without SASL are rejected.
    """

    def __init__(self, folder: Path, *, require_login: bool = False, tick_ms: int = 500) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = Authority(folder)
        self.foreign_authority = Authority(folder, "foreign")
        self.secure_port = free_port()
        server = self.authority.sign("zookeeper")
        jaas = folder / "jaas.conf"
        jaas.write_text(_jaas({USER: PASSWORD, OTHER_USER: OTHER_PASSWORD}))
        settings: dict[str, object] = {
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "secureClientPort": self.secure_port,
            "secureClientPortAddress": "127.0.0.1",
            "ssl.keyStore.location": _key_and_certificate(server),
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": self.authority.cert,
            "ssl.trustStore.type": "PEM",
            "ssl.clientAuth": "want",
            "authProvider.sasl": f"{_PROVIDERS}.SASLAuthenticationProvider",
            "authProvider.x509": f"{_PROVIDERS}.X509AuthenticationProvider",
        }
        if require_login:
            settings |= {"enforce.auth.enabled": "true", "enforce.auth.schemes": "sasl"}
        digest = base64.b64encode(hashlib.sha1(SUPERUSER.encode()).digest()).decode()
        options = [
            f"-Djava.security.auth.login.config={jaas}",
            f"-Dzookeeper.DigestAuthenticationProvider.superDigest={SUPERUSER.partition(':')[0]}:{digest}",
        ]
        super().__init__(folder, tick_ms=tick_ms, settings=settings, java_options=options)

    def secure_connect(self, chroot: str = "", *, host: str = "localhost") -> str:
        """Returns the connect string of the port with TLS."""
        return f"{host}:{self.secure_port}{chroot}"

    def tls(self, client: Signed | None = None) -> ssl.SSLContext:
        """Returns the settings of a client that trusts this server, with a certificate of its own if one is given."""
        context = ssl.create_default_context(cafile=str(self.authority.cert))
        if client is not None:
            context.load_cert_chain(client.cert, client.key)
        return context


def _jaas(users: Mapping[str, str]) -> str:
    lines = []
    for user, password in users.items():
        escaped = password.replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'    user_{user}="{escaped}"')
    options = "\n".join(lines)
    return f"Server {{\n    {_PROVIDERS}.DigestLoginModule required\n{options};\n}};\n"


def _key_and_certificate(signed: Signed) -> Path:
    path = signed.cert.with_suffix(".both.pem")
    path.write_text(signed.key.read_text() + signed.cert.read_text())
    return path
