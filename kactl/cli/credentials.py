"""Credentials of the command line for a server.

The first of these that exists is used: `--token-file`, `KACTL_TOKEN_FILE`, `KACTL_TOKEN`, the context file, the run
file of a server that the same user runs. There is no option for a token itself: other users can read arguments.
"""

import os
import urllib.parse
from collections.abc import Mapping
from typing import Final, NamedTuple

from kactl.admin.identity import run_file
from kactl.model.errors import KactlError

from . import context_file
from .context_file import Context
from .exits import Exit, Failure
from .secret_files import read_secret

_PORTS: Final = {"http": 80, "https": 443}


class Credential(NamedTuple):
    """What to present to a server.

    Attributes:
        origins: servers that the token is sent to.
        socket: path of a Unix socket that is used in place of the network.
        ca: file with the authority of the server's certificate; empty for those of the system.
        cert, key: files of the client's own certificate, for the same servers as the token; empty for none.
    """

    token: str = ""
    origins: frozenset[str] = frozenset()
    socket: str = ""
    ca: str = ""
    cert: str = ""
    key: str = ""


def find(
    server: str,
    token_file: str | None,
    ca_file: str | None = None,
    env: Mapping[str, str] | None = None,
    *,
    context: str = "",
) -> Credential:
    """Returns the credential for a server; an empty one if there is none.

    Args:
        token_file, ca_file: options of the command line.
        context: name of the context that the server was taken from; empty if it was not.

    Raises:
        Failure: USAGE; a file that is named cannot be read, or others can read it.
    """
    env = os.environ if env is None else env
    found = _context(server, context, env)
    ca = ca_file or env.get("KACTL_CA_FILE") or ("" if found is None else found.ca)
    return _chosen(server, token_file, found, env)._replace(ca=ca)


def _chosen(server: str, token_file: str | None, context: Context | None, env: Mapping[str, str]) -> Credential:
    own = frozenset({origin(server)})
    for option, path in (("--token-file", token_file), ("KACTL_TOKEN_FILE", env.get("KACTL_TOKEN_FILE"))):
        if path:
            return Credential(secret(path, option), own)
    if token := env.get("KACTL_TOKEN", "").strip():
        return Credential(_presentable(token, "KACTL_TOKEN"), own)
    if context is not None:
        origins = {context.server, *context.origins}
        token = _presentable(context.token, context_file.NAME)
        if context.token_file:
            token = secret(context.token_file, context_file.NAME)
        if token or context.cert:
            return Credential(token, frozenset(map(origin, origins)), cert=context.cert, key=context.key)
    return _of_running(server)


def origin(url: str) -> str:
    """Returns scheme, host and port of a URL, the port always written."""
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return url
    return f"{parts.scheme}://{(parts.hostname or '').lower()}:{port}"


def running(server: str) -> run_file.RunFile | None:
    """Returns the run file of a server that this user runs; None if there is none."""
    parts = urllib.parse.urlsplit(server)
    try:
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        return None
    return run_file.find(run_file.run_folder(), parts.hostname or "", port)


def _of_running(server: str) -> Credential:
    found = running(server)
    if found is None:
        return Credential()
    if found.socket:
        # The token stays here: if the server has stopped, another program may have taken its port.
        return Credential(socket=found.socket)
    try:
        return Credential(secret(found.token_file, "the run file"), frozenset({origin(server)}))
    except Failure:
        return Credential()


def _context(server: str, name: str, env: Mapping[str, str]) -> Context | None:
    """Returns the named context; without a name, the first one of the server."""
    contexts = context_file.load(env)
    if name:
        return contexts.named(name)
    wanted = origin(server)
    return next((context for context in contexts.contexts.values() if origin(context.server) == wanted), None)


def secret(path: str, key: str) -> str:
    """Returns the token in a file; `key` names it in errors."""
    try:
        token = read_secret(path, key).reveal().decode()
    except KactlError as error:
        raise Failure(str(error), Exit.USAGE) from None
    return _presentable(token, f"{key}: {path}")


def _presentable(token: str, source: str) -> str:
    """Returns a token that a header can hold. The failure names its source, never the token."""
    if not token.isascii() or not token.replace(" ", "").isprintable():
        raise Failure(f"{source}: a token is one line of ASCII characters: copy it again", Exit.USAGE)
    return token
