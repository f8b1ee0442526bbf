"""Access to files and folders, local or remote by a URI (`hdfs://`, `s3://`) that all machines can read.

Writers lock their output folder. At its end a writer removes the work folders of earlier writers that were killed, and
cannot tell them from the work folder of a concurrent writer. Therefore only one process writes to a folder at a time.
The lock is a kernel file lock, which is released when the process is killed. Remote storage has no locks.
"""

import contextlib
import errno
import fcntl
import os
import re
import shutil
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, cast

from kactl.model.errors import BadRequest
from kactl.runtime.private_files import open_private

_URI: Final = re.compile(r"[a-z][a-z0-9+.-]+://", re.ASCII)
# Suffix of a file that is being written.
NEW: Final = ".new"
# Tables and manifests have names of hosts, topics and principals.
_FOLDER_MODE: Final = 0o700


class Location:
    """A file or folder. Local names are plain paths; remote ones are accessed through Arrow file systems."""

    def __init__(self, name: str) -> None:
        self.name = name.rstrip("/") or name[:1]  # "/" stays as it is

    def __str__(self) -> str:
        return self.name

    def __truediv__(self, inner: str) -> "Location":
        return Location(f"{self.name}/{inner}")

    @property
    def is_remote(self) -> bool:
        return _URI.match(self.name) is not None

    @property
    def real(self) -> str:
        """The name with symbolic links resolved."""
        return self.name if self.is_remote else os.path.realpath(self.name)

    @property
    def identity(self) -> tuple[int, int] | str:
        """A value that is equal for all names of one file, hard links included. The name if the file does not exist."""
        if not self.is_remote:
            try:
                status = os.stat(self.name)
            except OSError:
                return self.real
            return status.st_dev, status.st_ino
        return self.name

    @property
    def absolute(self) -> str:
        """The name for other processes: Spark starts its workers in folders of their own."""
        return self.name if self.is_remote else os.path.abspath(self.name)

    @property
    def uri(self) -> str:
        """The URI for Spark, which would resolve a plain path in the default file system of its cluster."""
        return self.name if self.is_remote else f"file://{self.absolute}"

    # -- reading -------------------------------------------------------------------------------------------------------

    def open(self) -> BinaryIO:
        """Open the file for reading from its beginning. The returned file is seekable.

        Raises:
            OSError: the file cannot be read.
        """
        if not self.is_remote:
            if _is_stream(os.stat(self.name).st_mode):
                raise OSError(errno.ESPIPE, "it is a pipe, socket or device: save its content to a file", self.name)
            return open(self.name, "rb")
        files, path = self._remote()
        return cast(BinaryIO, files.open_input_file(path))

    def size(self) -> int:
        """Return the stored size in bytes."""
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
        """Yield this file, or all files below this folder in no particular order. Hidden files are skipped.

        Links are followed, and no folder is entered twice. Files and folders without read permission are yielded too,
        so that opening them raises the reason.

        Raises:
            OSError: the location does not exist.
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
        unreadable: list[str] = []
        entered: set[tuple[int, int]] = set()
        _enter(self.name, entered)
        walk = os.walk(self.name, followlinks=True, onerror=lambda error: unreadable.append(str(error.filename)))
        for folder, inner, names in walk:
            inner[:] = [
                name for name in sorted(inner)
                if not name.startswith(".") and _enter(os.path.join(folder, name), entered)
            ]  # fmt: skip
            for name in sorted(names):
                path = os.path.join(folder, name)
                if not name.startswith(".") and _may_be_file(path):
                    yield Location(path)
        yield from map(Location, unreadable)

    # -- writing -------------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Return the sorted names in a folder; an empty list if the folder does not exist."""
        if not self.is_remote:
            return sorted(os.listdir(self.name)) if os.path.isdir(self.name) else []
        files, path = self._remote()
        selector = _fs().FileSelector(path, allow_not_found=True)
        return sorted(str(info.base_name) for info in files.get_file_info(selector))

    def may_be_written(self) -> bool:
        """Whether this process may create this folder or write to it. Always true for a URI: only a write shows it."""
        if self.is_remote:
            return True
        above = os.path.abspath(self.name)
        while not os.path.lexists(above):
            above = os.path.dirname(above)
        effective = os.access in os.supports_effective_ids  # the default checks the real user id
        return os.path.isdir(above) and os.access(above, os.W_OK | os.X_OK, effective_ids=effective)

    def make(self) -> None:
        """Create the folder and its parents."""
        if not self.is_remote:
            _make(self.name)
            return
        files, path = self._remote()
        files.create_dir(path, recursive=True)

    def create(self) -> BinaryIO:
        """Create a file for writing, and its folder if needed."""
        if self.is_remote:
            files, path = self._remote()
            return cast(BinaryIO, files.open_output_stream(path))
        _make(os.path.dirname(self.name) or ".")
        return cast(BinaryIO, open_private(self.name, "wb"))

    def write(self, content: bytes) -> None:
        """Write a whole file. A local write is atomic."""
        if self.is_remote:
            files, path = self._remote()
            with files.open_output_stream(path) as file:
                file.write(content)
            return
        temporary = self.name + NEW
        try:
            with open_private(temporary, "wb") as new:
                new.write(content)
                new.flush()
                os.fsync(new.fileno())
            os.replace(temporary, self.name)
        except BaseException:
            with contextlib.suppress(OSError):
                os.remove(temporary)
            raise

    def move_to(self, other: "Location") -> None:
        if not self.is_remote:
            os.rename(self.name, other.name)
            return
        files, path = self._remote()
        files.move(path, other._remote()[1])

    def remove(self) -> None:
        """Remove the file, or the folder and its content. Does nothing if it does not exist."""
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


def _make(folder: str) -> None:
    """Create a folder and its parents for their owner alone. `os.makedirs` gives its mode to the last one only."""
    if not os.path.isdir(folder):
        _make(os.path.dirname(folder) or ".")
        try:
            os.mkdir(folder, _FOLDER_MODE)
        except FileExistsError:
            if not os.path.isdir(folder):  # otherwise a concurrent writer was faster
                raise


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
    """Record that a folder is entered. Returns whether it was not entered before under any name; true if unreadable."""
    try:
        status = os.stat(folder)
    except OSError:
        return True
    identity = (status.st_dev, status.st_ino)
    is_first = identity not in entered
    entered.add(identity)
    return is_first


def _may_be_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return True


def _is_stream(mode: int) -> bool:
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


# -- lock --------------------------------------------------------------------------------------------------------------


class InUse(BadRequest):
    """Another process writes to the folder."""


@contextlib.contextmanager
def lock_folder(place: Location) -> Iterator[None]:
    """Hold an exclusive lock on an existing folder.

    Raises:
        InUse: another process holds the lock. This function does not wait, because that may take hours.
        OSError: the folder does not exist or cannot be opened.
    """
    if place.is_remote:
        yield
        return
    folder = os.open(place.name, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUse(
                str(place), "another kactl writes into this folder: wait until it has ended, or name another folder"
            ) from None
        except OSError:
            pass  # the file system has no locks, like remote storage
        yield
    finally:
        os.close(folder)
