"""Handlers of the admin requests about users: AlterUserScramCredentials and DescribeUserScramCredentials.

The active controller checks each alteration and stores the keys that are derived from a salted password. A user with an
invalid alteration is not changed; the other users of the request are. No message contains a salt, a password or a key.

Source: ZkAdminManager.alterUserScramCredentials, describeUserScramCredentials.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol

from kactl.model.errors import ErrorCode, KactlError, NotController
from kactl.security.sasl import ScramVerifier
from kactl.security.sasl.scram import ITERATIONS_MIN, Name, verifier_of

from .api_keys import ALTER_USER_SCRAM_CREDENTIALS, DESCRIBE_USER_SCRAM_CREDENTIALS
from .field_types import STEP, Values
from .responses import Handler, error_of, result
from .served_controller import ServedController

# The protocol's numbers of mechanisms.
MECHANISMS: Final[Mapping[int, Name]] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_NUMBERS: Final = {name: number for number, name in MECHANISMS.items()}
# A broker computes a login's proof with so many; Kafka's limit.
ITERATIONS_MAX: Final = 16_384
_NO_STORE: Final = "the users of this cluster are not in ZooKeeper, and kactl stores none: use `kactl kafka-user`"


class UserRecords(Protocol):
    """The stored SCRAM credentials of the cluster's users."""

    async def scram_users(self, names: Collection[str] | None) -> dict[str, dict[Name, int]]:
        """Returns the iterations by mechanism of users; of all for None. Users without credentials are left out.

        Raises:
            StoreError: they cannot be read.
        """

    async def alter_scram(self, username: str, changes: Mapping[Name, ScramVerifier | None]) -> bool:
        """Store credentials of a user, or remove them (None), and notify the brokers.

        Returns:
            False if one is to be removed that does not exist: nothing was changed.

        Raises:
            StoreError: the outcome is unknown.
        """


class UserHandlers:
    """Handlers of the admin requests about users.

    Args:
        users: None in clusters whose users are not stored.
    """

    def __init__(self, controller: ServedController, users: UserRecords | None) -> None:
        self._controller = controller
        self._users = users

    def handlers(self) -> dict[int, Handler]:
        return {ALTER_USER_SCRAM_CREDENTIALS: self.on_alter, DESCRIBE_USER_SCRAM_CREDENTIALS: self.on_describe}

    async def on_alter(self, request: dict[str, Any], version: int) -> Values:
        alterations = [*request["deletions"], *request["upsertions"]]
        counts = Counter((each["name"], each["mechanism"]) for each in alterations)
        results: dict[str, dict[str, Any]] = {}
        changes: dict[str, dict[Name, ScramVerifier | None]] = {}
        for number, each in enumerate(alterations, 1):
            if number % STEP == 0:
                await asyncio.sleep(0)
            name, mechanism = each["name"], each["mechanism"]
            changes.setdefault(name, {})
            if name not in results and (error := _error(each, is_repeated=counts[name, mechanism] > 1)):
                results[name] = result(*error)
            if name not in results:
                changes[name][MECHANISMS[mechanism]] = _verifier(each)
        for name, of_user in changes.items():
            if name not in results:
                results[name] = await self._altered(name, of_user)
        return {"results": [{"user": name, **results[name]} for name in changes]}

    async def _altered(self, name: str, changes: Mapping[Name, ScramVerifier | None]) -> dict[str, Any]:
        try:
            if self._users is None:
                return result(ErrorCode.UNSUPPORTED_VERSION, _NO_STORE)
            if not self._controller.is_active:
                raise NotController(self._controller.active_id)
            if await self._users.alter_scram(name, changes):
                return result(ErrorCode.NONE, "")
        except Exception as error:
            return result(*error_of(error))
        return result(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")

    async def on_describe(self, request: dict[str, Any], version: int) -> Values:
        """Return mechanisms and iterations of users; of all if the request names none."""
        named = [user["name"] for user in request["users"] or ()]
        counts = Counter(named)
        try:
            if self._users is None:
                return result(ErrorCode.UNSUPPORTED_VERSION, _NO_STORE)
            known = await self._users.scram_users([name for name in counts if name] if named else None)
        except KactlError as error:
            return result(*error_of(error))
        return {"results": [_description(name, known, counts[name]) for name in (counts if named else sorted(known))]}


def _error(alteration: dict[str, Any], *, is_repeated: bool) -> tuple[ErrorCode, str] | None:
    """Returns why an alteration is invalid; None if it is not."""
    if not alteration["name"]:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if alteration["mechanism"] not in MECHANISMS:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    if "iterations" in alteration:
        if not alteration["salted_password"]:
            return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Password must not be empty"
        if alteration["iterations"] < ITERATIONS_MIN:
            return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"
        if alteration["iterations"] > ITERATIONS_MAX:
            return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"
    if is_repeated:
        return ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
    return None


def _verifier(alteration: dict[str, Any]) -> ScramVerifier | None:
    """Returns what is stored for an upsertion; None for a deletion."""
    if "iterations" not in alteration:
        return None
    salt, salted = bytes(alteration["salt"]), bytes(alteration["salted_password"])
    return verifier_of(MECHANISMS[alteration["mechanism"]], salted, salt=salt, iterations=alteration["iterations"])


def _description(name: str, known: Mapping[str, Mapping[Name, int]], count: int) -> dict[str, Any]:
    if count > 1:
        reason = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return {"user": name, **result(ErrorCode.DUPLICATE_RESOURCE, reason)}
    if name not in known:
        reason = f"Attempt to describe a user credential that does not exist: {name}"
        return {"user": name, **result(ErrorCode.RESOURCE_NOT_FOUND, reason)}
    infos = [{"mechanism": _NUMBERS[mechanism], "iterations": count} for mechanism, count in known[name].items()]
    return {"user": name, "credential_infos": infos}
