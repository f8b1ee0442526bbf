"""Places in which a program runs: namespaces, mounts, users and limits, as prefixes of a command.

    place = Place(process_one=True, files={"/etc/hosts": hosts})
    Process([*place.prefix(), sys.executable, "-m", "program"], output=...)

Signals to the process group reach the program, as without a place.
"""

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import pytest

from tests.support import tree
from tests.support.jars import REQUIRE

# Neither has a name: no line of /etc/passwd or /etc/group.
USER: Final = 54_321
GROUP: Final = 54_322
_MISSING: Final = "tests of real environments need root, and the programs unshare, mount and ip"
_ENTER: Final = Path(__file__).with_name("enter.py")
_NAMESPACES: Final = ("unshare", "--fork", "--kill-child")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a program runs; by default it is where the tests run.

    Attributes:
        process_one: as process 1 of a PID namespace.
        own_network: in a network namespace with a loopback interface only.
        boot_offset_s: what a time namespace adds to boot time and monotonic time.
        read_only: nothing can be written but what is below `writable`.
        files: bind mounts, source by path.
        small: file systems in memory of so many KiB, by path.
        user: id of the user, and of the group unless `groups` names others; None is root.
        groups: ids, the process's own group first.
        environment: variables in place of HOME; None for a home folder.
        needed: other paths that the user must reach.
    """

    process_one: bool = False
    own_network: bool = False
    boot_offset_s: int = 0
    read_only: bool = False
    writable: tuple[Path, ...] = ()
    files: Mapping[str, Path] = field(default_factory=dict)
    small: Mapping[str, int] = field(default_factory=dict)
    user: int | None = None
    groups: tuple[int, ...] = ()
    umask: int | None = None
    descriptors: int | None = None
    environment: Mapping[str, str] | None = None
    needed: tuple[Path, ...] = ()

    def prefix(self) -> list[str]:
        """Returns what comes before the command of a program."""
        mounts = bool(self.read_only or self.files or self.small or self.user)
        flags = ["--pid", "--mount-proc"] if self.process_one else []
        flags += ["--mount"] if mounts and not self.process_one else []
        flags += ["--net"] if self.own_network else []
        if self.boot_offset_s:
            flags += ["--time", f"--boottime={self.boot_offset_s}", f"--monotonic={self.boot_offset_s}"]
        options = {
            "mounts": mounts,
            "small": self.small,
            "files": {path: str(source) for path, source in self.files.items()},
            "read_only": self.read_only,
            "writable": [str(path) for path in self.writable],
            "user": self.user,
            "groups": self.groups,
            "umask": self.umask,
            "descriptors": self.descriptors,
            "loopback": self.own_network,
            "needed": [str(path) for path in (sys.base_prefix, tree.ROOT, *self.writable, *self.needed)],
        }
        unshare = [*_NAMESPACES, *flags] if flags else []
        return [*unshare, sys.executable, "-I", "-S", str(_ENTER), msgspec.json.encode(options).decode()]


HERE: Final = Place()


def require_places() -> None:
    """Without namespaces the test is skipped, or fails if KACTL_REQUIRE_INTEROP=1."""
    if not _can_unshare():
        if os.environ.get(REQUIRE) == "1":
            pytest.fail(_MISSING)
        pytest.skip(_MISSING)


@functools.cache
def _can_unshare() -> bool:
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "mount", "ip"))):
        return False
    command = [*_NAMESPACES, "--pid", "--mount-proc", "--net", "--time", "--boottime=1", "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
