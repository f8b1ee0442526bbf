"""Archives of logs: tar, packed or not, and zip. Their files are unpacked into a folder, and then read like others."""

import contextlib
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any, BinaryIO, Final

from kactl.forensics.storage import Location

from .source import RATIO_FREE_BYTES, RATIO_MAX, Broken, Unpacked, packing, why

MEMBERS_MAX: Final = 10_000
# An archive in an archive, such as the bundles of nodes in that of a cluster.
DEPTH_MAX: Final = 2
_CHUNK: Final = 1 << 20
_TAR: Final = re.compile(rb"[^\0].{256}ustar", re.DOTALL)
_ZIP: Final = b"PK\x03\x04"
_DAMAGE: Final = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, Broken)
# Archives of programs, not of logs.
_PROGRAMS: Final = (".jar", ".war", ".whl")


def is_archive(path: str) -> bool:
    """Return whether a file is an archive with files in it."""
    with contextlib.suppress(OSError, Broken, ValueError), Location(path).open() as file:
        program = packing(file)
        begin = Unpacked(file, program).read(1024) if program else file.read(1024)
        return _TAR.match(begin) is not None or (
            begin.startswith(_ZIP) and not path.endswith(_PROGRAMS) and zipfile.is_zipfile(file)
        )
    return False


def unpack(path: str, folder: Location, name: str, depth: int = 1) -> Iterator[tuple[str, str, str]]:
    """Unpack an archive.

    Args:
        folder: a new folder for its files.
        name: what to show in place of the path.

    Yields:
        For each file: its path, the name to show, such as `logs.tgz!broker-1/server.log`, and why it is not complete;
        empty if it is.
    """
    place, shown, count = folder, name, 0
    try:
        with Location(path).open() as file:
            for count, (member, content, limit) in enumerate(_members(file), 1):
                if count > MEMBERS_MAX:
                    raise Broken(f"has more than {MEMBERS_MAX:,} files: unpack it, and name the folders with logs")
                parts = [part for part in re.split(r"[/\\\0]+", member) if part not in ("", ".", "..")]
                last = "/".join(parts) or "file"
                place, shown = folder / f"{count}/{last}", f"{name}!{last}"
                _copy(content, place, limit)
                if depth < DEPTH_MAX and is_archive(str(place)):
                    yield from unpack(str(place), folder / f"{count}+", shown, depth + 1)
                else:
                    yield str(place), shown, ""
    except _DAMAGE as error:
        yield str(place), shown, f"{name} cannot be unpacked further: {why(error)}"


def _members(file: BinaryIO) -> Iterator[tuple[str, IO[bytes], int]]:
    """Yield the name and the content of each file, and how long it may be. Links and devices are left out."""
    program = packing(file)
    if not program and file.read(4) == _ZIP:
        with zipfile.ZipFile(file) as archive:
            for info in archive.infolist():
                if not info.is_dir():
                    with archive.open(info) as content:
                        yield info.filename, content, max(RATIO_FREE_BYTES, RATIO_MAX * info.compress_size)
        return
    file.seek(0)
    # `Unpacked` has the limit of a packed archive; the files of another one are no longer than it is.
    plain: Any = Unpacked(file, program) if program else file
    with tarfile.open(fileobj=plain, mode="r|") as archive:
        for member in archive:
            file_in_it = archive.extractfile(member) if member.isreg() else None
            if file_in_it is not None:
                yield member.name, file_in_it, member.size


def _copy(content: IO[bytes], place: Location, limit: int) -> None:
    size = 0
    with place.create() as written:
        while chunk := content.read(_CHUNK):
            size += len(chunk)
            if size > limit:
                raise Broken(f"{place.name} becomes more than {RATIO_MAX} times longer, which no log does")
            written.write(chunk)
