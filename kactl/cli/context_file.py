"""The context file: named servers, with what commands present to them.

It is only written by `kactl context`, with mode 0600; a file with tokens that others can read is not used.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from kactl.model.errors import BadConfig
from kactl.runtime.private_files import check_private, check_trusted, write_private

from .exits import Exit, Failure, of_system
from .toml_text import toml_lines

NAME: Final = "contexts.toml"


class Context(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True, omit_defaults=True):
    """A server in the context file.

    Attributes:
        token_file: a file with the token to present.
        token: the token itself; `token_file` takes precedence.
        cert, key: the client's certificate.
        origins: servers that it may redirect to.
    """

    server: str
    token_file: str = ""
    token: str = ""
    ca: str = ""
    cert: str = ""
    key: str = ""
    origins: tuple[str, ...] = ()


class Contexts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The content of the file. `current`: the context of commands that name none; empty for none."""

    current: str = ""
    contexts: dict[str, Context] = {}

    def named(self, name: str) -> Context:
        """Returns a context.

        Raises:
            Failure: USAGE; there is none of this name.
        """
        try:
            return self.contexts[name]
        except KeyError:
            known = ", ".join(sorted(self.contexts)) or "none; add one with `kactl context add`"
            raise Failure(f"context {name!r}: there is no such context; known: {known}", Exit.USAGE) from None


def path_of(env: Mapping[str, str]) -> Path:
    """Returns the path of the file.

    Raises:
        Failure: the user has no home folder.
    """
    home = env.get("XDG_CONFIG_HOME") or ""
    try:
        return (Path(home) if home.startswith("/") else Path.home() / ".config") / "kactl" / NAME
    except RuntimeError:
        raise Failure("this user has no home folder to keep contexts in: set HOME or XDG_CONFIG_HOME") from None


def load(env: Mapping[str, str] | None = None) -> Contexts:
    """Returns the content of the file; nothing if it cannot be read, or there is no home folder.

    Raises:
        Failure: USAGE; it is not a context file, or others can read its tokens.
    """
    try:
        path = path_of(os.environ if env is None else env)
    except Failure:
        return Contexts()
    try:
        with path.open("rb") as file:
            content = file.read().decode()
            check_trusted(path, str(path), os.fstat(file.fileno()))
            trouble = _trouble(file.fileno(), path)
    except BadConfig as error:
        raise Failure(str(error), Exit.USAGE) from None
    except (OSError, UnicodeDecodeError):
        return Contexts()
    import tomllib

    try:
        contexts = msgspec.convert(tomllib.loads(content), Contexts)
    except (ValueError, RecursionError) as error:
        raise Failure(f"{path}: is not a context file: {error}", Exit.USAGE) from None
    if trouble and any(context.token for context in contexts.contexts.values()):
        raise Failure(f"{path}: it contains tokens: {trouble}", Exit.USAGE)
    return contexts


def _trouble(descriptor: int, path: Path) -> str:
    try:
        check_private(descriptor, path, "")
    except BadConfig as error:
        return error.reason
    return ""


def save(contexts: Contexts, env: Mapping[str, str] | None = None) -> Path:
    """Replace the file. Only its owner can read it. Returns its path."""
    path = path_of(os.environ if env is None else env)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, ("\n".join(toml_lines(msgspec.to_builtins(contexts))) + "\n").encode())
    except OSError as error:
        raise of_system(error, str(path)) from None
    return path
