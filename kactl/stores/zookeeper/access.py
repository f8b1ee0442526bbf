"""The brokers' SCRAM users and access control lists in ZooKeeper. kactl writes users, and no lists.

Users are read at each login, so that a change counts at once. The lists are read as a whole when the notices about
their changes have changed.

Source: Kafka's ZkData (ConfigEntityZNode, ZkAclStore), ZkAclChangeStore, AdminZkClient.changeUserOrUserClientIdConfig.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, ZookeeperError

from kactl.model.errors import StoreError
from kactl.runtime.logs import logger
from kactl.security.access import Acl, Acls, Resource, ResourceType
from kactl.security.sasl import ScramVerifier
from kactl.security.sasl.scram import ITERATIONS_MIN, Name
from kactl.stores.formats import access as formats
from kactl.stores.formats.json_text import Malformed

from . import layout, request
from .client import Client

log = logger(__name__)

_USERS: Final = "/config/users"
# Writes of one user, each after another client's.
_ATTEMPTS_MAX: Final = 10
_LITERAL: Final = "/kafka-acl"
_PREFIXED: Final = "/kafka-acl-extended/prefixed"
# The notices. Their names rise; brokers delete old ones.
_CHANGES: Final = ("/kafka-acl-changes", "/kafka-acl-extended-changes")
_TYPES: Final = {kind.value: kind for kind in ResourceType}


class AccessRecords:
    """Reads users and lists over a store's connection."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def scram_verifier(self, mechanism: Name, username: str) -> ScramVerifier | None:
        """Returns what is stored of a user's password; None if there is no such user, or not for this mechanism.

        Raises:
            StoreError: it cannot be read.
        """
        path = f"{_USERS}/{formats.user_name(username)}"
        (node,) = await self._client.read_all([path])
        if isinstance(node, NoNodeError):
            return None
        if isinstance(node, ZookeeperError):
            raise StoreError(f"a user below {_USERS} could not be read in ZooKeeper: {node!r}")
        try:
            return formats.decode_user(node[0], mechanism)
        except Malformed as error:
            raise StoreError(f"a user below {_USERS} is malformed: {error}") from None

    async def scram_users(self, names: Collection[str] | None) -> dict[str, dict[Name, int]]:
        """Returns the iterations by mechanism of users; of all for None. Users without credentials are left out.

        Raises:
            StoreError: they cannot be read.
        """
        nodes = await self._children(_USERS) if names is None else [formats.user_name(name) for name in names]
        found: dict[str, dict[Name, int]] = {}
        read = await self._client.read_all([f"{_USERS}/{node}" for node in nodes])
        for node, content in zip(nodes, read, strict=True):
            try:
                known = formats.iterations(_content(content)[0])
            except Malformed as error:
                log.warning("%s/%s is left out of the users, it is malformed: %s", _USERS, node, error)
                continue
            if known:
                found[formats.name_of_user(node)] = known
        return found

    async def alter_scram(self, username: str, changes: Mapping[Name, ScramVerifier | None]) -> bool:
        """Store credentials of a user, or remove them (None), and notify the brokers. Other settings are kept.

        Returns:
            False if one is to be removed that does not exist: nothing was changed.

        Raises:
            StoreError: the outcome is unknown.
        """
        path, client = f"{_USERS}/{formats.user_name(username)}", self._client
        name = f"{layout.CONFIG_CHANGES}/{layout.CONFIG_CHANGE_PREFIX}"
        notice = client.create(name, formats.encode_change(username), sequential=True)
        written = b""
        for _ in range(_ATTEMPTS_MAX):
            data, version = _content((await client.read_all([path]))[0])
            if written and data == written:
                return True  # before the connection broke
            try:
                config = formats.decode_config(data)
            except Malformed as error:
                raise StoreError(f"a user below {_USERS} is malformed, and is not changed: {error}") from None
            if any(known is None and mechanism not in config for mechanism, known in changes.items()):
                return False
            written = formats.encode_user(config, changes)
            write = (
                client.create(path, written) if version is None else request.put(client.path(path), written, version)
            )
            failed = request.first_error(await client.ask(request.multi([write, notice])))
            if failed is None:
                return True
            if not isinstance(failed, BadVersionError | NodeExistsError | NoNodeError):
                raise StoreError(f"a user below {_USERS} could not be written: {failed!r}")
        raise StoreError(f"a user below {_USERS} could not be written: other clients change it; try again")

    def iterations(self, mechanism: Name) -> Collection[int]:
        """Returns the iterations of the users' verifiers: those of Kafka's tools, since the users are not listed."""
        return (ITERATIONS_MIN,)

    async def acl_version(self) -> tuple[int, ...]:
        """Returns a value that differs after the lists have changed.

        Raises:
            StoreError: it cannot be read.
        """
        results = (await self._client.ask_all([self._client.exists(path) for path in _CHANGES])).results
        for path, stat in zip(_CHANGES, results, strict=True):
            if isinstance(stat, ZookeeperError):
                raise StoreError(f"{path} could not be read in ZooKeeper: {stat!r}")
        return tuple(-1 if stat is None else stat.cversion for stat in results)

    async def has_authorizer(self) -> bool:
        """Returns whether any broker has had an authorizer, which creates the folders of notices when it starts.

        Raises:
            StoreError: it cannot be read.
        """
        return any(version >= 0 for version in await self.acl_version())

    async def acls(self) -> Acls:
        """Returns all lists.

        Raises:
            StoreError: they cannot be read.
        """
        return Acls(await self._below(_LITERAL), await self._below(_PREFIXED))

    async def _below(self, folder: str) -> dict[Resource, list[Acl]]:
        """Returns the lists of the resources in a folder, which has a folder for each type."""
        resources = [
            Resource(_TYPES[kind], name)
            for kind in await self._children(folder)
            if kind in _TYPES
            for name in await self._children(f"{folder}/{kind}")
        ]
        paths = [f"{folder}/{resource.type.value}/{resource.name}" for resource in resources]
        acls: dict[Resource, list[Acl]] = {}
        for resource, path, node in zip(resources, paths, await self._client.read_all(paths), strict=True):
            if isinstance(node, NoNodeError):
                continue  # deleted meanwhile
            if isinstance(node, ZookeeperError):
                raise StoreError(f"{path} could not be read in ZooKeeper: {node!r}")
            acls[resource] = formats.decode_acls(path, node[0])
        return acls

    async def _children(self, path: str) -> list[str]:
        result = await self._client.ask(self._client.children(path))
        if isinstance(result, NoNodeError):
            return []
        if isinstance(result, ZookeeperError):
            raise StoreError(f"{path} could not be listed in ZooKeeper: {result!r}")
        return sorted(result[0])


def _content(node: Any) -> tuple[bytes | None, int | None]:
    """Returns data and version of a user's node; None if there is none."""
    if isinstance(node, NoNodeError):
        return None, None
    if isinstance(node, ZookeeperError):
        raise StoreError(f"a user below {_USERS} could not be read in ZooKeeper: {node!r}")
    data, stat = node
    return data, stat.version
