"""Machine and versions of a run."""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Final

import msgspec

import kactl

# Packages that affect the speed of kactl.
_PACKAGES: Final = ("numpy", "msgspec", "anyio", "uvloop", "kazoo")
_ROOT: Final = Path(kactl.__file__).resolve().parent.parent
UNKNOWN: Final = "unknown"


class Machine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Machine on which a benchmark ran.

    Attributes:
        cpu: model as reported by the kernel.
        cores: cores that this process may use.
        memory_mb: total memory.
        loop: the event loop: `asyncio`, `uvloop`, or `none`.
    """

    cpu: str
    cores: int
    memory_mb: int
    kernel: str
    python: str
    loop: str

    def differences(self, other: "Machine") -> list[str]:
        """Returns the differences of two machines, as `cores 2 / 8`."""
        mine, theirs = (msgspec.structs.asdict(each) for each in (self, other))
        return [f"{name} {mine[name]} / {theirs[name]}" for name in mine if mine[name] != theirs[name]]


def machine(*, loop: str) -> Machine:
    """Returns this machine."""
    return Machine(
        cpu=_after_colon(Path("/proc/cpuinfo"), "model name") or platform.processor() or UNKNOWN,
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_mb=_memory_mb(),
        kernel=f"{platform.system()} {platform.release()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        loop=loop,
    )


def versions() -> dict[str, str]:
    """Returns the versions of kactl, its commit, and the installed packages."""
    found = {"kactl": _package("kactl"), "commit": _commit()}
    return found | {name: _package(name) for name in _PACKAGES}


def _package(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    """Returns the checked-out commit, with a plus if files differ from it."""
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        return f"{commit}+" if _git("status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=_ROOT, capture_output=True, check=True, text=True, timeout=10)
    return done.stdout.strip()


def _after_colon(path: Path, name: str) -> str:
    """Returns the text after the colon of the first line that begins with `name`; empty if there is none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def _memory_mb() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
