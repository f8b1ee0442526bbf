"""The store of a cluster in this process, by its configuration."""

import ssl
from collections.abc import Callable

from kactl.clock import Clock
from kactl.config.settings import Config, StoreConfig
from kactl.errors import BadConfig
from kactl.stores.base import Store
from kactl.stores.sqlite import Holder, SqliteStore


def store_factory(config: Config, *, clock: Clock | None, holder: Holder) -> Callable[[], Store]:
    """Returns a function that makes a client of the store.

    Args:
        holder: the lock on the data folder, for SQLite: sessions of the process that held it before end at once.

    Raises:
        BadConfig: a file that the configuration names cannot be read.
    """
    store = config.store
    if store.kind == "sqlite":
        return lambda: SqliteStore(store.path, clock=clock, session_timeout_ms=store.session_timeout, holder=holder)
    from kactl.stores.etcd import EtcdStore

    password, tls = _password(store), tls_context(store)
    return lambda: EtcdStore(
        store.endpoints,
        cluster=config.cluster,
        prefix=store.prefix,
        session_timeout_ms=store.session_timeout,
        user=store.user or None,
        password=password,
        tls=tls,
        clock=clock,
    )


def describe_store(config: Config) -> str:
    """Returns where the cluster is stored, for messages."""
    if config.store.kind == "etcd":
        return f"etcd at {', '.join(config.store.endpoints)}, below {config.store.prefix.rstrip('/')}/{config.cluster}"
    return config.store.path


def _password(store: StoreConfig) -> str | None:
    if not store.password_file:
        return None
    try:
        with open(store.password_file, encoding="utf-8") as file:
            return file.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig("store.password-file", f"{store.password_file} cannot be read: {error}") from None


def tls_context(store: StoreConfig) -> ssl.SSLContext | None:
    """Returns the settings for connections to etcd; None for those of the system.

    Raises:
        BadConfig: a file cannot be read, or is something else.
    """
    if not store.ca and not store.cert:
        return None
    try:
        context = ssl.create_default_context(cafile=store.ca or None)
    except OSError as error:
        raise BadConfig("store.ca", f"{store.ca} is no file of certificates: {error}") from None
    if store.cert:
        try:
            context.load_cert_chain(store.cert, store.key)
        except OSError as error:
            raise BadConfig("store.cert", f"{store.cert} and {store.key} are no certificate and key: {error}") from None
    return context
