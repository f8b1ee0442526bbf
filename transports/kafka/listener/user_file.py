"""The file of users of kactl's own, which `kactl kafka-user` writes: in JSON, one user and mechanism a line.

{"name":"ops","mechanism":"SCRAM-SHA-512","iterations":8192,"salt":"...","stored_key":"...","server_key":"..."}

It has verifiers of passwords, and no passwords. A user in the file is that of the file alone: one of the cluster with
the same name does not count. JSON is read much faster than TOML, which matters in the process of a controller.
"""

import asyncio
import hashlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec

from kactl.model.errors import BadConfig, KactlError
from kactl.runtime import reloading
from kactl.runtime.logs import logger
from kactl.runtime.private_files import read_private, write_private
from kactl.runtime.threads import run_in_thread
from kactl.security.sasl import ScramVerifier
from kactl.security.sasl.scram import HASHES, ITERATIONS_MAX, ITERATIONS_MIN, Name

from .authentication import Users

log = logger(__name__)

KEY: Final = "kafka.users"
BYTES_MAX: Final = 16 << 20
USERS_MAX: Final = 10_000
NAME_LENGTH_MAX: Final = 255
# How often a change of the file is looked for.
POLL_S: Final = 2.0
# A login of a user in the file waits for the cluster's users as other logins do, but not when they cannot be read.
_STORE_S: Final = 1.0

Verifiers = Mapping[Name, ScramVerifier]


class User(NamedTuple):
    """What the file has of a user."""

    name: str
    verifiers: Verifiers


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_LENGTH_MAX)]
    mechanism: Name
    iterations: Annotated[int, msgspec.Meta(ge=ITERATIONS_MIN, le=ITERATIONS_MAX)]
    salt: Annotated[bytes, msgspec.Meta(min_length=1, max_length=64)]
    stored_key: bytes
    server_key: bytes


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(_Line)


def is_name(text: str) -> bool:
    """Returns whether a user can have this name."""
    return 0 < len(text) <= NAME_LENGTH_MAX and text.isprintable() and text.strip() == text


def decode(content: bytes) -> dict[str, User]:
    """Returns the users in the content of a file, by name.

    Raises:
        ValueError: it is no such content. The text does not quote it.
    """
    found: dict[str, dict[Name, ScramVerifier]] = {}
    for number, text in enumerate(content.splitlines(), 1):
        try:
            line = _decoder.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ValueError(f"line {number}: {error}") from None
        size = hashlib.new(HASHES[line.mechanism]).digest_size
        if len(line.stored_key) != size or len(line.server_key) != size or not is_name(line.name):
            raise ValueError(f"line {number}: its name or a key cannot be used")
        verifiers = found.setdefault(line.name, {})
        if line.mechanism in verifiers:
            raise ValueError(f"line {number}: the same user and mechanism occur twice")
        verifiers[line.mechanism] = ScramVerifier(line.salt, line.iterations, line.stored_key, line.server_key)
        if len(found) > USERS_MAX:
            raise ValueError(f"more than {USERS_MAX} users")
    return {name: User(name, verifiers) for name, verifiers in found.items()}


def encode(users: Iterable[User]) -> bytes:
    """Returns the content of a file, in which equal users are equal bytes."""
    lines = [
        _Line(user.name, mechanism, known.iterations, known.salt, known.stored_key, known.server_key)
        for user in sorted(users, key=lambda user: user.name)
        for mechanism, known in sorted(user.verifiers.items())
    ]
    return b"".join(_encoder.encode(line) + b"\n" for line in lines)


def read_users(path: Path) -> dict[str, User]:
    """Returns the users of a file.

    Raises:
        BadConfig: it cannot be read, others can use it, or it is no such file.
        FileNotFoundError: there is no file.
    """
    try:
        return decode(read_private(path, KEY, bytes_max=BYTES_MAX))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise BadConfig(KEY, f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise BadConfig(KEY, f"{path} is not a file of users: {error}: see `kactl kafka-user`") from None


def write_users(path: Path, users: Iterable[User]) -> None:
    """Replace a file.

    Raises:
        BadConfig: it cannot be written.
    """
    try:
        write_private(path, encode(users))
    except OSError as error:
        raise BadConfig(KEY, f"{path} cannot be written: {error.strerror}") from None


class UserFile:
    """The users of a file, and those of the cluster.

    Args:
        others: the cluster's users; None without any.

    Attributes:
        reload_failed: the file has changed, and cannot be used; the previous users stay.

    Raises:
        BadConfig: the file cannot be used.
    """

    def __init__(self, path: Path, others: Users | None = None) -> None:
        self._path = path = path.absolute()  # the working directory may change
        self._others = others
        self._version = reloading.version_of(path)
        self.reload_failed = False
        try:
            self._users = read_users(path)
            self._iterations = _iterations(self._users)
        except FileNotFoundError:
            raise BadConfig(KEY, f"{path} does not exist: make it with `kactl kafka-user add`") from None

    async def scram_verifier(self, mechanism: Name, username: str) -> ScramVerifier | None:
        """See `Users`. The time that it takes does not tell where the user is."""
        user = self._users.get(username)
        if user is None:
            return None if self._others is None else await self._others.scram_verifier(mechanism, username)
        if self._others is not None:
            try:
                async with asyncio.timeout(_STORE_S):
                    await self._others.scram_verifier(mechanism, username)
            except (KactlError, TimeoutError):
                pass  # users of the file can log in also while the store is lost
        return user.verifiers.get(mechanism)

    def iterations(self, mechanism: Name) -> Collection[int]:
        """See `Users`."""
        others = () if self._others is None else self._others.iterations(mechanism)
        return {*self._iterations[mechanism], *others}

    async def run(self) -> None:
        """Read the file again when it changes, until cancelled."""
        while True:
            await reloading.pause(POLL_S)
            await self.refresh()

    async def refresh(self) -> None:
        """Read the file again if it has changed. One that cannot be used changes nothing."""
        version = await run_in_thread(reloading.version_of, self._path)
        if version == self._version:
            return
        self._version = version  # one line in the log for each change
        try:
            self._users = await run_in_thread(read_users, self._path)
        except (BadConfig, FileNotFoundError) as error:
            self.reload_failed = True
            log.error("the users of the Kafka listeners cannot be read again, so the previous ones stay: %s", error)
        else:
            self.reload_failed = False
            self._iterations = _iterations(self._users)
            log.info("%d users of the Kafka listeners have been read again", len(self._users))


def _iterations(users: Mapping[str, User]) -> Mapping[Name, frozenset[int]]:
    verifiers = [user.verifiers for user in users.values()]
    return {name: frozenset(own[name].iterations for own in verifiers if name in own) for name in HASHES}
