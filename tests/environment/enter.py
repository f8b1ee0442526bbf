"""Arrange the namespaces of this process, then become another program: python -I -S enter.py OPTIONS PROGRAM ...

OPTIONS is the JSON form of a `Place`. The namespaces are new, so that no mount here is seen outside of them.
"""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any


def enter(options: dict[str, Any]) -> None:
    """Make the mounts first, while this process is root and can write."""
    if options["mounts"]:
        _run("mount", "--make-rprivate", "/")
        for path, kib in options["small"].items():
            _run("mount", "-t", "tmpfs", "-o", f"size={kib}k,mode=777", "tmpfs", path)
        for path, source in options["files"].items():
            _run("mount", "--bind", source, path)
        if options["user"]:
            _let_everyone_reach(options["needed"])
        if options["read_only"]:
            for path in options["writable"]:
                _run("mount", "--bind", path, path)
            _protect_all_but(options["writable"])
    if options["loopback"]:
        _run("ip", "link", "set", "lo", "up")
    if options["descriptors"]:
        resource.setrlimit(resource.RLIMIT_NOFILE, (options["descriptors"],) * 2)
    if options["umask"] is not None:
        os.umask(options["umask"])
    if options["user"]:
        os.setgroups(options["groups"])
        os.setresgid(*[options["groups"][0] if options["groups"] else options["user"]] * 3)
        os.setresuid(*[options["user"]] * 3)


def _let_everyone_reach(paths: list[str]) -> None:
    """Let any user reach paths: a closed folder above them is covered by an open one, which contains them alone."""
    closed: dict[Path, list[Path]] = {}
    for path in map(Path, paths):
        for parent in reversed(path.parents):
            if not parent.stat().st_mode & 1:
                closed.setdefault(parent, []).append(path)
                break
    for parent, below in closed.items():
        kept = {path: os.open(path, os.O_PATH) for path in below}
        _run("mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "tmpfs", str(parent))
        for path, descriptor in kept.items():
            path.mkdir(parents=True, exist_ok=True)
            command = ["mount", "--no-canonicalize", "--bind", f"/proc/self/fd/{descriptor}", str(path)]
            subprocess.run(command, check=True, pass_fds=[descriptor])
            os.close(descriptor)


def _protect_all_but(writable: list[str]) -> None:
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for path in dict.fromkeys(mounted):
        if path not in writable and not path.startswith("/proc"):
            _run("mount", "-o", "remount,bind,ro", path)


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    enter(options)
    os.execvp(sys.argv[2], sys.argv[2:])
