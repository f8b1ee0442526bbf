"""The command that installs an extra of kactl for this installation."""

import importlib.metadata
import json
import shlex
from pathlib import Path
from urllib.parse import unquote, urlsplit


def install(extras: str) -> str:
    """Returns the command for extras, as `server,etcd`: from the tree that this kactl was installed from or runs in.

    No package index has a copy of it there, and what an index offers under its name may be another program. Only an
    installation by name is extended by name.
    """
    tree = Path(__file__).parents[2]
    is_tree = (tree / "pyproject.toml").is_file()
    wanted = shlex.quote(f"{tree if is_tree else _source() or 'kactl'}[{extras}]")
    return f"pip install -e {wanted}" if is_tree else f"pip install {wanted}"


def _source() -> Path | None:
    """Returns the folder that pip has installed kactl from; None if it came by name, or the folder has gone."""
    try:
        origin = importlib.metadata.distribution("kactl").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None
    url = urlsplit(json.loads(origin)["url"] if origin else "")
    folder = Path(unquote(url.path))
    return folder if url.scheme == "file" and (folder / "pyproject.toml").is_file() else None
