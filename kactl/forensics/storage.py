"""Where files lie: on this machine, or behind a URI (`hdfs://`, `s3://`) that all machines of a cluster see."""

import contextlib
import errno
import gzip
import io
import os
import re
import shutil
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, cast

_URI: Final = re.compile(r"[a-z][a-z0-9+.-]+://", re.ASCII)
# Behind the name of a file, as long as it is not whole.
NEW: Final = ".new"
GZIP_MAGIC: Final = b"\x1f\x8b"


class Location:
    """A file or folder. Local names are plain paths; what stands behind a URI is reached through Arrow."""

    def __init__(self, name: str) -> None:
        self.name = name.rstrip("/") or name[:1]  # of all of them, or of none

    def __str__(self) -> str:
        return self.name

    def __truediv__(self, inner: str) -> "Location":
        return Location(f"{self.name}/{inner}")

    @property
    def is_remote(self) -> bool:
        return _URI.match(self.name) is not None

    @property
    def real(self) -> str:
        """Another name, which all that are links to the same have in common."""
        return self.name if self.is_remote else os.path.realpath(self.name)

    @property
    def identity(self) -> tuple[int, int] | str:
        """What all names of one file have in common, those of hard links too; of one that is not there, its name."""
        if not self.is_remote:
            try:
                found = os.stat(self.name)
            except OSError:
                return self.real
            return found.st_dev, found.st_ino
        return self.name

    @property
    def uri(self) -> str:
        """As Spark wants it: a local path must not be taken for one in the cluster's own store."""
        return self.name if self.is_remote else "file://" + os.path.abspath(self.name)

    # -- reading -------------------------------------------------------------------------------------------------------

    def open(self) -> BinaryIO:
        """To read, from the beginning; it can seek.

        Raises:
            OSError: it cannot be read.
        """
        if not self.is_remote:
            if _is_stream(os.stat(self.name).st_mode):
                raise OSError(errno.ESPIPE, "it is a pipe, socket or device: write what it gives to a file", self.name)
            return open(self.name, "rb")
        files, path = self._remote()
        return cast(BinaryIO, files.open_input_file(path))

    def unpacked(self) -> BinaryIO:
        """The same, without gzip around it. What is broken in it is found while reading."""
        file = self.open()
        if self.is_packed(file):
            return cast(BinaryIO, io.BufferedReader(gzip.GzipFile(fileobj=file)))
        return file

    @staticmethod
    def is_packed(file: BinaryIO) -> bool:
        """Whether an open file is gzip, by its first bytes; its position is the beginning afterwards."""
        begin = file.read(len(GZIP_MAGIC))
        file.seek(0)
        return begin == GZIP_MAGIC

    def size(self) -> int:
        """In bytes, as stored."""
        if not self.is_remote:
            return os.stat(self.name).st_size
        files, path = self._remote()
        return int(files.get_file_info(path).size or 0)

    def exists(self) -> bool:
        if not self.is_remote:
            return os.path.lexists(self.name)
        files, path = self._remote()
        return bool(files.get_file_info(path).type != _types().NotFound)

    def is_folder(self) -> bool:
        if not self.is_remote:
            return os.path.isdir(self.name)
        files, path = self._remote()
        return bool(files.get_file_info(path).type == _types().Directory)

    def files(self) -> Iterator["Location"]:
        """Itself if it is a file, or all files below it, in no particular order. Hidden ones are passed over.

        Links are followed, and no folder is entered twice. What cannot be looked at is among the files, folders too:
        whoever opens it is told why.

        Raises:
            OSError: it is not there.
        """
        if not self.is_remote:
            yield from self._local_files()
            return
        files, path = self._remote()
        head = self.name[: len(self.name) - len(path)] if self.name.endswith(path) else ""
        for info in _selected(files, path):
            hidden = "/." in str(info.path)[len(path) :]
            if info.type == _types().File and not hidden:
                yield Location(head + info.path)

    def _local_files(self) -> Iterator["Location"]:
        if not os.path.isdir(self.name):
            os.stat(self.name)
            yield self
            return
        shut: list[str] = []
        entered: set[tuple[int, int]] = set()
        _enter(self.name, entered)
        walk = os.walk(self.name, followlinks=True, onerror=lambda error: shut.append(str(error.filename)))
        for folder, inner, names in walk:
            inner[:] = [
                name for name in sorted(inner)
                if not name.startswith(".") and _enter(os.path.join(folder, name), entered)
            ]  # fmt: skip
            for name in sorted(names):
                path = os.path.join(folder, name)
                if not name.startswith(".") and _may_be_file(path):
                    yield Location(path)
        yield from map(Location, shut)

    # -- writing -------------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """What a folder holds, sorted; nothing if it is not there."""
        if not self.is_remote:
            return sorted(os.listdir(self.name)) if os.path.isdir(self.name) else []
        files, path = self._remote()
        selector = _fs().FileSelector(path, allow_not_found=True)
        return sorted(str(info.base_name) for info in files.get_file_info(selector))

    def may_be_written(self) -> bool:
        """Whether we may make a folder here, or write into the one that is here. Behind a URI only trying tells."""
        if self.is_remote:
            return True
        above = os.path.abspath(self.name)
        while not os.path.lexists(above):
            above = os.path.dirname(above)
        mine = os.access in os.supports_effective_ids  # else it asks for whoever began the process
        return os.path.isdir(above) and os.access(above, os.W_OK | os.X_OK, effective_ids=mine)

    def make(self) -> None:
        """The folder, and those above it."""
        if not self.is_remote:
            os.makedirs(self.name, exist_ok=True)
            return
        files, path = self._remote()
        files.create_dir(path, recursive=True)

    def create(self) -> BinaryIO:
        """A new file to write, in a folder that is made if it is not there."""
        if self.is_remote:
            files, path = self._remote()
            return cast(BinaryIO, files.open_output_stream(path))
        os.makedirs(os.path.dirname(self.name) or ".", exist_ok=True)
        return open(self.name, "wb")

    def write(self, content: bytes) -> None:
        """All of a file at once; on this machine, whole or not at all."""
        if self.is_remote:
            files, path = self._remote()
            with files.open_output_stream(path) as file:
                file.write(content)
            return
        beside = self.name + NEW
        try:
            with open(beside, "wb") as new:
                new.write(content)
                new.flush()
                os.fsync(new.fileno())
            os.replace(beside, self.name)
        except BaseException:
            with contextlib.suppress(OSError):
                os.remove(beside)
            raise

    def move_to(self, other: "Location") -> None:
        if not self.is_remote:
            os.rename(self.name, other.name)
            return
        files, path = self._remote()
        files.move(path, other._remote()[1])

    def remove(self) -> None:
        """It and all below; nothing if it is not there."""
        if not self.exists():
            return
        if self.is_remote:
            files, path = self._remote()
            is_folder = files.get_file_info(path).type == _types().Directory
            files.delete_dir(path) if is_folder else files.delete_file(path)
        elif os.path.isdir(self.name) and not os.path.islink(self.name):
            shutil.rmtree(self.name)
        else:
            os.remove(self.name)

    def _remote(self) -> tuple[Any, str]:
        files, path = _fs().FileSystem.from_uri(self.name)
        return files, str(path)


def _fs() -> Any:
    from pyarrow import fs

    return fs


def _types() -> Any:
    return _fs().FileType


def _selected(files: Any, path: str) -> list[Any]:
    info = files.get_file_info(path)
    if info.type == _types().NotFound:
        raise FileNotFoundError(2, "No such file or directory", path)
    if info.type == _types().File:
        return [info]
    return list(files.get_file_info(_fs().FileSelector(path, recursive=True)))


def _enter(folder: str, entered: set[tuple[int, int]]) -> bool:
    """Whether a folder was not entered before, by whichever name; one that cannot be looked at was not."""
    try:
        found = os.stat(folder)
    except OSError:
        return True
    place = (found.st_dev, found.st_ino)
    is_first = place not in entered
    entered.add(place)
    return is_first


def _may_be_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return True


def _is_stream(mode: int) -> bool:
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
