"""kactl's login at the brokers, as `[kafka.client]` configures it."""

from typing import TYPE_CHECKING

from kactl.admin.exposure import BROKERS
from kactl.config.settings import Config

from .client_tls import client_tls
from .secret_files import read_secret

if TYPE_CHECKING:
    from kactl.transports.kafka import BrokerCredentials


def broker_credentials(config: Config) -> "BrokerCredentials":
    """Returns the credentials. Raises BadConfig if a file that the configuration names cannot be used."""
    from kactl.transports.kafka import BrokerCredentials

    client = config.kafka.client
    return BrokerCredentials(
        tls=client_tls("kafka.client", ca=client.ca, cert=client.cert, key=client.key),
        server_name=client.server_name or None,
        mechanism=client.sasl_mechanism or None,
        username=client.username or None,
        password=read_secret(client.password_file, "kafka.client.password-file") if client.password_file else None,
        allow_clear_text=BROKERS in config.security.allow_insecure,
    )
