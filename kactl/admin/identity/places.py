"""Paths of a server's credentials."""

import re
from pathlib import Path
from typing import Final, NamedTuple

from kactl.config.settings import Config
from kactl.model.errors import BadConfig
from kactl.runtime.listening import is_local
from kactl.runtime.user_state import state_folder

from .run_file import KEY, run_folder

KEY_FILE: Final = "ticket.key"
LOCAL_FILE: Final = "local.token"
TOKENS_FILE: Final = "tokens.toml"
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9._-]")


class Places(NamedTuple):
    """Paths of a server.

    Attributes:
        folder: for secrets of kactl's own.
        tokens: the token file.
        local: the file with the token of the user that the server runs as; None if it makes none.
        key: the file with the key that signs the tickets of web pages.
        run: the run folder.
    """

    folder: Path
    tokens: Path
    local: Path | None
    key: Path
    run: Path


def places_of(config: Config) -> Places:
    """Returns the paths. A server makes a token for its own user if nothing else is configured.

    Raises:
        BadConfig: there is no folder for secrets.
    """
    folder = security_folder(config)
    is_alone = not config.api.tokens and is_local(config.api.address.host)
    return Places(
        folder=folder,
        tokens=Path(config.api.tokens) if config.api.tokens else folder / TOKENS_FILE,
        local=folder / LOCAL_FILE if is_alone else None,
        key=folder / KEY_FILE,
        run=run_folder(),
    )


def security_folder(config: Config) -> Path:
    """Returns the folder for secrets.

    Raises:
        BadConfig: none is configured, and the user has no home folder.
    """
    if config.security.folder:
        return Path(config.security.folder)
    state = state_folder()
    if state is None:
        raise BadConfig(KEY, "this user has no home folder: name a folder for secrets, or set HOME or XDG_STATE_HOME")
    return state / f"{_UNUSUAL.sub('_', config.cluster)}-{config.node_id}"
