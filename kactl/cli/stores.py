"""The store of a cluster in this process, by its configuration."""

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from kactl.config.settings import Config, StoreConfig
from kactl.model import Broker
from kactl.model.errors import BadConfig
from kactl.runtime.clock import Clock
from kactl.runtime.secret import Secret
from kactl.stores.base import Store
from kactl.stores.sqlite import Holder, SqliteStore

from .client_tls import client_tls
from .secret_files import read_secret

if TYPE_CHECKING:
    from kactl.stores.zookeeper import ZooKeeperStore
    from kactl.stores.zookeeper.connection import Credentials
    from kactl.stores.zookeeper.permissions import Permissions


def store_factory(config: Config, *, clock: Clock | None, holder: Holder) -> Callable[[], Store]:
    """Returns a function that makes a client of the store.

    Args:
        holder: the lock on the data folder, for SQLite: sessions of the process that held it before end at once.

    Raises:
        BadConfig: a file that the configuration names cannot be read, or no such store is opened here.
    """
    store = config.store
    match store.kind:
        case "sqlite":
            return lambda: SqliteStore(store.path, clock=clock, session_timeout_ms=store.session_timeout, holder=holder)
        case "etcd":
            from kactl.stores.etcd import EtcdStore

            password, tls = _password(store), tls_context(store)
            return lambda: EtcdStore(
                store.endpoints,
                cluster=config.cluster,
                prefix=store.prefix,
                session_timeout_ms=store.session_timeout,
                start_timeout_ms=store.start_timeout,
                user=store.user or None,
                password=password,
                tls=tls,
                clock=clock,
            )
    raise BadConfig("store.kind", f"no cluster of this process is stored in {store.kind}: write sqlite or etcd")


def zookeeper_store(store: StoreConfig, listed_as: Broker | None = None) -> "ZooKeeperStore":
    """Returns a client of the store of a cluster of Kafka brokers.

    Args:
        listed_as: see `ZooKeeperStore`.

    Raises:
        BadConfig: a file that the configuration names cannot be read.
    """
    from kactl.stores.zookeeper import ZooKeeperStore

    return ZooKeeperStore(
        store.connect,
        session_timeout_ms=store.session_timeout,
        start_timeout_ms=store.start_timeout,
        max_in_flight=store.max_in_flight,
        batch_partitions=store.batch_partitions,
        sticky=store.sticky,
        tls=tls_context(store) if store.tls else None,
        username=store.user or None,
        password=_password(store),
        scheme=store.auth_scheme,
        set_acl=None if store.set_acl == "auto" else store.set_acl,
        listed_as=listed_as,
    )


def zookeeper_permissions(store: StoreConfig) -> "Permissions":
    """Returns a client for the permissions of a cluster's nodes, with the identity of the configuration.

    Raises:
        BadConfig: a file that the configuration names cannot be read.
    """
    from kactl.stores.zookeeper.permissions import Permissions

    return Permissions(store.connect, session_timeout_ms=store.session_timeout, credentials=_zookeeper_login(store))


async def zookeeper_brokers(store: StoreConfig) -> list[Broker]:
    """Returns the registrations in ZooKeeper, by id, over a connection of its own. Nothing is written.

    Raises:
        BadConfig: a file that the configuration names cannot be read.
        StoreError: they cannot be read.
    """
    from kactl.stores.zookeeper import registration
    from kactl.stores.zookeeper.client import Client

    client = Client(
        store.connect,
        session_timeout_ms=store.session_timeout,
        max_in_flight=store.max_in_flight,
        credentials=_zookeeper_login(store),
    )
    await client.open()
    try:
        return list((await registration.read_all(client, None)).values())
    finally:
        await client.close()


def _zookeeper_login(store: StoreConfig) -> "Credentials":
    from kactl.stores.zookeeper.connection import Credentials

    return Credentials(
        tls_context(store) if store.tls else None, store.user or None, _password(store), store.auth_scheme
    )


def describe_store(config: Config) -> str:
    """Returns where the cluster is stored, for messages."""
    if config.store.kind == "etcd":
        return f"etcd at {', '.join(config.store.endpoints)}, below {config.store.prefix.rstrip('/')}/{config.cluster}"
    return config.store.path


def _password(store: StoreConfig) -> Secret | None:
    return read_secret(store.password_file, "store.password-file") if store.password_file else None


def tls_context(store: StoreConfig) -> ssl.SSLContext | None:
    """Returns the settings for encrypted connections to the store; None for those of the system.

    Raises:
        BadConfig: a file cannot be read, or is something else.
    """
    return client_tls("store", ca=store.ca, cert=store.cert, key=store.key)
