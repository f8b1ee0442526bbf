"""Interfaces that others can reach or read without encryption. Without the operator's consent, none is opened."""

from typing import Final, NamedTuple
from urllib.parse import urlsplit

from kactl.config.settings import Config, StoreConfig
from kactl.errors import BadConfig
from kactl.runtime.addresses import is_local

API: Final = "api"
STORE: Final = "store"
NAMES: Final = (API, STORE)


class _Opening(NamedTuple):
    """Why an interface is open.

    Attributes:
        key: of the configuration.
        reason, remedy: for the operator.
    """

    key: str
    reason: str
    remedy: str


def insecure(config: Config) -> tuple[str, ...]:
    """Returns the names of the interfaces that are open by consent.

    Raises:
        BadConfig: an interface is open without consent, or the consent has no reason any more. Nothing has been
            opened.
    """
    allowed = config.security.allow_insecure
    unknown = next((name for name in allowed if name not in NAMES), None)
    if unknown is not None:
        names = " and ".join(f'"{name}"' for name in NAMES)
        raise BadConfig("security.allow-insecure", f"{unknown!r} is no interface that may be opened: there are {names}")
    openings = _openings(config)
    for name, opening in openings.items():
        if name not in allowed:
            raise BadConfig(
                opening.key, f'{opening.reason}: {opening.remedy}, or name "{name}" in security.allow-insecure'
            )
    for name in allowed:
        if name not in openings:
            raise BadConfig(
                "security.allow-insecure", f'"{name}" is secure: remove it, so that a later mistake is noticed'
            )
    return tuple(openings)


def reminders(config: Config) -> tuple[str, ...]:
    """Returns what is open, one text for each interface."""
    return tuple(f"{opening.key}: {opening.reason}" for opening in _openings(config).values())


def _openings(config: Config) -> dict[str, _Opening]:
    found = {API: _api(config), STORE: _store(config.store)}
    return {name: opening for name, opening in found.items() if opening is not None}


def _api(config: Config) -> _Opening | None:
    api = config.api
    if api.tls.cert or is_local(api.address.host):
        return None
    return _Opening(
        "api.listen",
        f'"{api.listen}" can be reached by others and has no TLS',
        "give [api.tls] cert and key, listen on 127.0.0.1",
    )


def _store(store: StoreConfig) -> _Opening | None:
    """Everything that is in etcd is sent to it in clear text, and so is a password of ZooKeeper's scheme digest. SASL
    proves a password without sending it."""
    if store.kind == "etcd":
        for endpoint in store.endpoints:
            url = urlsplit(endpoint)
            if url.scheme == "http" and not is_local(url.hostname or ""):
                return _Opening(
                    "store.endpoints", f'"{endpoint}" is another host, and has no TLS', 'write it as "https://..."'
                )
    if store.kind == "zookeeper" and store.auth_scheme == "digest" and not store.tls:
        hosts = store.connect.partition("/")[0].split(",")
        others = [host for host in hosts if not is_local(urlsplit(f"//{host.strip()}").hostname or "")]
        if others:
            return _Opening(
                "store.auth-scheme",
                f'"digest" would send the password to {others[0].strip()} in clear text',
                "set store.tls and store.ca",
            )
    return None
