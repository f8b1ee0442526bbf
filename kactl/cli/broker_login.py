"""kactl's login at the brokers, as `[kafka.client]` configures it."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from kactl.admin.exposure import BROKERS
from kactl.config.settings import Config

from .client_tls import client_tls
from .secret_files import read_secret

if TYPE_CHECKING:
    from kactl.runtime.secret import Secret
    from kactl.transports.kafka import BrokerCredentials
    from kactl.transports.kafka.credentials import Mechanism


def broker_credentials(config: Config) -> "BrokerCredentials":
    """Returns the credentials. Raises BadConfig if a file that the configuration names cannot be used."""
    from kactl.transports.kafka import BrokerCredentials

    client = config.kafka.client
    return BrokerCredentials(
        tls=client_tls("kafka.client", ca=client.ca, cert=client.cert, key=client.key),
        server_name=client.server_name or None,
        mechanism=cast("Mechanism", client.sasl_mechanism) or None,  # GSSAPI has been rejected
        username=client.username or None,
        password=read_secret(client.password_file, "kafka.client.password-file") if client.password_file else None,
        token=_token_source(client.token_file) if client.token_file else None,
        allow_clear_text=BROKERS in config.security.allow_insecure,
    )


def _token_source(path: str) -> "Callable[[], Secret]":
    """Returns a function that reads the token in a file, which another program renews.

    Raises:
        BadConfig: it cannot be read now.
    """
    read = functools.partial(read_secret, path, "kafka.client.token-file")
    read()
    return read
