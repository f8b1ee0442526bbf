"""The dashboard: files of this package at `/` and `/dashboard/NAME`. They hold no data, so that they need no token.

The page reads everything over the API, with the credential that its user gives it.
"""

import functools
import hashlib
import importlib.resources
from collections.abc import Mapping
from typing import Final, NamedTuple

from aiohttp import web

from .problem import Refused

INDEX: Final = "index.html"
# An empty page, into which the page writes a report of its user.
FRAME: Final = "frame.html"
FOLDER: Final = "/dashboard/"
_TYPES: Final = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
# Scripts, styles, requests and frames of this server only; no forms that leave the page.
SECURITY: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Asked for again each time, and not sent again unless it changed: pages and server have the same version.
    "Cache-Control": "no-cache",
}

# A report has styles of its own. It runs nothing and loads nothing, and is shown by this dashboard only.
FRAME_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; sandbox allow-same-origin; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)


class File(NamedTuple):
    """A file of the dashboard."""

    content: bytes
    content_type: str
    etag: str


@functools.cache
def files() -> Mapping[str, File]:
    """Returns all files by name."""
    folder = importlib.resources.files(__package__) / "dashboard"
    found = {}
    for entry in folder.iterdir():
        content_type = _TYPES.get(entry.name[entry.name.rfind(".") :])
        if content_type is not None:
            content = entry.read_bytes()
            found[entry.name] = File(content, content_type, hashlib.sha256(content).hexdigest()[:32])
    return found


def is_file(path: str) -> bool:
    """Returns whether a path below the prefix is the dashboard's."""
    return path == "/" or path.startswith(FOLDER)


async def serve_file(http: web.Request) -> web.Response:
    """Handle requests for a file."""
    name = http.match_info.get("name", INDEX)
    found = files().get(name)
    if found is None or (name == INDEX and "name" in http.match_info):
        raise Refused(404, "No such file", "the dashboard has no such file: open its first page at /")
    headers = SECURITY | {"ETag": f'"{found.etag}"'}
    if name == FRAME:
        headers["Content-Security-Policy"] = FRAME_POLICY
    if any(tag.value == found.etag for tag in http.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    return web.Response(body=found.content, content_type=found.content_type, charset="utf-8", headers=headers)
