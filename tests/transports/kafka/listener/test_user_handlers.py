"""SCRAM users through the listener: what is checked, what is stored, and that no secret is shown."""

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from kactl.model.errors import ErrorCode, StoreError
from kactl.security.sasl import ScramVerifier, salted_password, verifier
from kactl.security.sasl.scram import Name
from kactl.stores.formats import access
from kactl.transports.kafka.listener.api_keys import ALTER_USER_SCRAM_CREDENTIALS
from kactl.transports.kafka.listener.authorization import OpenListener
from kactl.transports.kafka.listener.user_handlers import UserHandlers

from .listener_stub import ControllerStub

SALTED = salted_password("SCRAM-SHA-256", "pencil", b"salt", 4096)
ANN = {"name": "ann", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": SALTED}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


pytestmark = pytest.mark.anyio


class Users:
    """Users in memory, by the data of their nodes."""

    def __init__(self) -> None:
        self.nodes: dict[str, bytes] = {}

    async def scram_users(self, names: Collection[str] | None) -> dict[str, dict[Name, int]]:
        wanted = self.nodes if names is None else names
        return {name: access.iterations(self.nodes[name]) for name in wanted if name in self.nodes}

    async def alter_scram(self, username: str, changes: Mapping[Name, ScramVerifier | None]) -> bool:
        config = access.decode_config(self.nodes.get(username))
        if any(known is None and name not in config for name, known in changes.items()):
            return False
        self.nodes[username] = access.encode_user(config, changes)
        return True


class LostUsers(Users):
    async def alter_scram(self, username: str, changes: Mapping[Name, ScramVerifier | None]) -> bool:
        raise StoreError("the store is away")


async def alter(users: Users | None, *upsertions: Any, deletions: Any = ()) -> list[tuple[str, int]]:
    handlers = UserHandlers(ControllerStub(), users)
    response = await handlers.on_alter({"deletions": list(deletions), "upsertions": list(upsertions)}, 0)
    return [(each["user"], each["error_code"]) for each in response["results"]]


async def test_stored_credentials_are_those_of_the_password() -> None:
    users = Users()

    assert await alter(users, ANN) == [("ann", ErrorCode.NONE)]

    expected = verifier("SCRAM-SHA-256", "pencil", salt=b"salt", iterations=4096)
    assert access.decode_user(users.nodes["ann"], "SCRAM-SHA-256") == expected


async def test_other_settings_of_a_user_are_kept() -> None:
    users = Users()
    users.nodes["ann"] = b'{"version":1,"config":{"producer_byte_rate":"5"}}'

    await alter(users, ANN)
    await alter(users, deletions=[{"name": "ann", "mechanism": 1}])

    assert access.decode_config(users.nodes["ann"]) == {"producer_byte_rate": "5"}


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"name": ""}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"mechanism": 3}, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ({"iterations": 4095}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"iterations": 16_385}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"salted_password": b""}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
async def test_invalid_credential_leaves_its_user_unchanged(wrong: dict[str, Any], code: ErrorCode) -> None:
    users, bad = Users(), ANN | wrong
    other = ANN | {"name": bad["name"], "mechanism": 2}

    answers = await alter(users, bad, other, ANN | {"name": "bob"})

    assert answers == [(bad["name"], code), ("bob", ErrorCode.NONE)]
    assert users.nodes.keys() == {"bob"}


async def test_user_without_the_credential_cannot_lose_it() -> None:
    assert await alter(Users(), deletions=[{"name": "ann", "mechanism": 1}]) == [("ann", ErrorCode.RESOURCE_NOT_FOUND)]


async def test_credential_cannot_be_altered_twice_in_a_request() -> None:
    users = Users()

    assert await alter(users, ANN, ANN) == [("ann", ErrorCode.DUPLICATE_RESOURCE)]
    assert not users.nodes


async def test_clusters_without_stored_users_change_none() -> None:
    assert await alter(None, ANN) == [("ann", ErrorCode.UNSUPPORTED_VERSION)]


async def test_no_error_and_no_repr_contains_a_secret() -> None:
    handlers = UserHandlers(ControllerStub(), LostUsers())
    secrets = (SALTED, verifier("SCRAM-SHA-256", "pencil", salt=b"salt", iterations=4096).stored_key)

    shown = repr(await handlers.on_alter({"deletions": [], "upsertions": [ANN]}, 0)) + repr(
        verifier("SCRAM-SHA-256", "pencil", salt=b"salt", iterations=4096)
    )

    assert "the store is away" in shown
    assert not any(repr(secret)[2:-1] in shown for secret in secrets)


async def test_described_users_have_mechanisms_and_iterations_only() -> None:
    users = Users()
    await alter(users, ANN)
    handlers = UserHandlers(ControllerStub(), users)

    named = await handlers.on_describe({"users": [{"name": "ann"}, {"name": "bob"}, {"name": "bob"}]}, 0)
    everyone = await handlers.on_describe({"users": None}, 0)

    ann = {"user": "ann", "credential_infos": [{"mechanism": 1, "iterations": 4096}]}
    assert named["results"][0] == ann
    assert named["results"][1]["error_code"] is ErrorCode.DUPLICATE_RESOURCE
    assert everyone == {"results": [ann]}


def test_open_listener_changes_no_users_where_brokers_authorize() -> None:
    request = {"deletions": [], "upsertions": [ANN]}

    verdict = OpenListener(None, lambda: False).check(ALTER_USER_SCRAM_CREDENTIALS, request, 0, None)  # type: ignore[arg-type]

    assert verdict.request is None
    codes = [each["error_code"] for each in verdict.complete({})["results"]]
    assert codes == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
