"""Where files lie: on this machine, or behind a URI (`hdfs://`, `s3://`) that all machines of a cluster see."""

import gzip
import io
import os
import re
import shutil
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, cast

_URI: Final = re.compile(r"[a-z][a-z0-9+.-]+://", re.ASCII)
GZIP_MAGIC: Final = b"\x1f\x8b"


class Place:
    """A file or folder. Local names are plain paths; what stands behind a URI is reached through Arrow."""

    def __init__(self, name: str) -> None:
        self.name = name.rstrip("/") or "/"

    def __str__(self) -> str:
        return self.name

    def __truediv__(self, inner: str) -> "Place":
        return Place(f"{self.name}/{inner}")

    @property
    def is_remote(self) -> bool:
        return _URI.match(self.name) is not None

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

    def files(self) -> Iterator["Place"]:
        """Itself if it is a file, or all files below it, in no particular order. Hidden ones are passed over.

        Raises:
            OSError: it, or a folder in it, cannot be read.
        """
        if not self.is_remote:
            yield from self._local_files()
            return
        files, path = self._remote()
        head = self.name[: len(self.name) - len(path)] if self.name.endswith(path) else ""
        for info in _selected(files, path):
            hidden = "/." in str(info.path)[len(path) :]
            if info.type == _types().File and not hidden:
                yield Place(head + info.path)

    def _local_files(self) -> Iterator["Place"]:
        if not os.path.isdir(self.name):
            os.stat(self.name)
            yield self
            return
        for folder, inner, names in os.walk(self.name, onerror=_raise):
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            for name in sorted(names):
                path = os.path.join(folder, name)
                if not name.startswith(".") and os.path.isfile(path):
                    yield Place(path)

    # -- writing -------------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """What a folder holds, sorted; nothing if it is not there."""
        if not self.is_remote:
            return sorted(os.listdir(self.name)) if os.path.isdir(self.name) else []
        files, path = self._remote()
        selector = _fs().FileSelector(path, allow_not_found=True)
        return sorted(str(info.base_name) for info in files.get_file_info(selector))

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
        beside = self.name + ".new"
        with open(beside, "wb") as new:
            new.write(content)
            new.flush()
            os.fsync(new.fileno())
        os.replace(beside, self.name)

    def move_to(self, other: "Place") -> None:
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


def _raise(error: OSError) -> None:
    raise error
