"""Formats of SCRAM users and of access control lists.

Source: Kafka's ScramCredentialUtils, ConfigEntityZNode, AclEntry, ResourceZNode.
"""

import base64
import binascii
import re
import urllib.parse
from collections.abc import Mapping
from typing import Final

import msgspec

from kactl.runtime.logs import logger
from kactl.security.access import Acl, Operation
from kactl.security.sasl import ScramVerifier
from kactl.security.sasl.scram import HASHES, ITERATIONS_MAX, ITERATIONS_MIN, Name

from .json_text import Malformed, decode, decoder

log = logger(__name__)

# Entries of one resource, and bytes of one text.
ACLS_MAX: Final = 10_000
_ITERATIONS: Final = re.compile("(?:^|,)iterations=([0-9]{1,9})(?:,|$)")
_DENY_ALL: Final = Acl("User:*", "*", Operation.ALL, is_denial=True)
_PERMISSIONS: Final = {"allow": False, "deny": True}
_OPERATIONS: Final = {operation.value.lower(): operation for operation in Operation}


class _Config(msgspec.Struct):
    config: dict[str, str]


class _Entry(msgspec.Struct, rename={"permission_type": "permissionType"}):
    principal: str
    permission_type: str
    host: str
    operation: str


class _Entries(msgspec.Struct):
    acls: list[_Entry]


_config_decoder: Final = decoder(_Config)
_entries_decoder: Final = decoder(_Entries)


def user_name(name: str) -> str:
    """Returns the name of a user's node."""
    return urllib.parse.quote(name, safe="").replace("~", "%7E")


def decode_user(data: bytes | None, mechanism: str) -> ScramVerifier | None:
    """Returns what is stored of a user's password for a mechanism; None if nothing is.

    Raises:
        Malformed: it cannot be read.
    """
    text = decode(_config_decoder, data).config.get(mechanism)
    if text is None:
        return None
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        iterations = int(fields["iterations"])
        salt, stored_key, server_key = (
            base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
    except (KeyError, ValueError, binascii.Error):
        raise Malformed("the credentials of a user are malformed") from None  # without quoting them
    if not (salt and stored_key and server_key and ITERATIONS_MIN <= iterations <= ITERATIONS_MAX):
        raise Malformed(f"the credentials of a user have {iterations} iterations, or an empty part")
    return ScramVerifier(salt, iterations, stored_key, server_key)


def name_of_user(node: str) -> str:
    """Returns the name of the user of a node."""
    return urllib.parse.unquote(node)


def decode_config(data: bytes | None) -> dict[str, str]:
    """Returns the settings of a user, with the credentials among them; none of a node without data.

    Raises:
        Malformed: they cannot be read.
    """
    return decode(_config_decoder, data).config if data else {}


def iterations(data: bytes | None) -> dict[Name, int]:
    """Returns the iterations of a user's credentials by mechanism; those without a number are left out."""
    config = decode_config(data)
    found = {name: _ITERATIONS.search(config.get(name, "")) for name in HASHES}
    return {name: int(matched[1]) for name, matched in found.items() if matched}


def encode_user(config: Mapping[str, str], changes: Mapping[Name, ScramVerifier | None]) -> bytes:
    """Returns the data of a user's node with changed credentials; None removes one that exists."""
    kept = {name: text for name, text in config.items() if name not in changes}
    changed = {name: _encoded(known) for name, known in changes.items() if known is not None}
    return msgspec.json.encode({"version": 1, "config": kept | changed})


def _encoded(known: ScramVerifier) -> str:
    parts = {"salt": known.salt, "stored_key": known.stored_key, "server_key": known.server_key}
    texts = [f"{name}={base64.b64encode(part).decode()}" for name, part in parts.items()]
    return ",".join([*texts, f"iterations={known.iterations}"])


def encode_change(name: str) -> bytes:
    """Returns a notice that the settings of a user changed."""
    return msgspec.json.encode({"version": 2, "entity_path": f"users/{user_name(name)}"})


def decode_acls(path: str, data: bytes | None) -> list[Acl]:
    """Returns the entries of a node. One that cannot be read denies everything: a denial in it must not be lost."""
    try:
        entries = decode(_entries_decoder, data).acls
        if len(entries) > ACLS_MAX:
            raise Malformed(f"{len(entries)} entries, and at most {ACLS_MAX} are read")
        return [_decoded(entry) for entry in entries]
    except Malformed as error:
        log.error("%s: the access control list is malformed, and everything is denied by it: %s", path, error)
        return [_DENY_ALL]


def _decoded(entry: _Entry) -> Acl:
    permission, operation = _PERMISSIONS.get(entry.permission_type.lower()), _OPERATIONS.get(entry.operation.lower())
    if permission is None or operation is None:
        raise Malformed(f"{entry.permission_type} {entry.operation} is no permission and operation")
    return Acl(entry.principal, entry.host, operation, permission)
