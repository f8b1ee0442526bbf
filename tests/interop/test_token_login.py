"""kactl's login by OAUTHBEARER at a real broker, whose validator takes tokens without a signature."""

import asyncio
import base64
import json
import time
from collections.abc import Iterator

import pytest

from kactl.runtime.secret import Secret
from kactl.transports.kafka import BrokerCredentials
from kactl.transports.kafka.credentials import LoginConnection, LoginFailed
from tests.support.zookeeper_server import ZooKeeperServer

from .brokers import KafkaBroker

pytestmark = [pytest.mark.anyio, pytest.mark.long]

_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
# On loopback in clear text; the login is the same over TLS.
SETTINGS = {
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,CLIENT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "listener.name.client.oauthbearer.sasl.jaas.config": f'{_MODULE} required unsecuredLoginStringClaim_sub="broker";',
    "connections.max.reauth.ms": "60000",
}


@pytest.fixture(scope="module")
def broker(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    folder = tmp_path_factory.mktemp("tokens")
    with KafkaBroker(1, folder=folder, zookeeper=zookeeper.connect("/tokens"), overrides=SETTINGS) as broker:
        yield broker


def token(*, lifetime_s: float = 3600.0) -> str:
    """Returns a JWT without a signature."""
    claims = {"sub": "kactl", "iat": time.time() - 10, "exp": time.time() + lifetime_s}
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."


async def log_in(broker: KafkaBroker, text: str, *, times: int = 1) -> LoginConnection:
    credentials = BrokerCredentials(mechanism="OAUTHBEARER", token=lambda: Secret(text))
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.client_port)
    login = LoginConnection(credentials, reader, writer, client_id="kactl", host="127.0.0.1")
    try:
        for _ in range(times):
            await login.run()
    finally:
        writer.transport.abort()
    return login


async def test_broker_accepts_the_token_and_its_renewal(broker: KafkaBroker) -> None:
    login = await log_in(broker, token(), times=2)

    assert login._renew_at is not None  # the broker's limit of a login has been read


@pytest.mark.parametrize("text", [token(lifetime_s=-5), "no.token", "x"])
async def test_broker_refuses_other_tokens_with_a_reason(broker: KafkaBroker, text: str) -> None:
    with pytest.raises(LoginFailed, match=r"rejects the holder of kactl's token .*renew the token"):
        await log_in(broker, text)
