"""Volumes and Secrets as Kubernetes makes them for a pod with `runAsUser`, and `fsGroup` as a group of its processes.

A volume is mounted. When a pod starts, each of its files gets that group and `g+rw`, each folder `g+rwxs`, and the root
of the volume belongs to root. A Secret is a file system that can only be read. Its files belong to root and the group,
and are links to links: `password -> ..data/password`, `..data -> ..2026_01_01`.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from . import tree

USER: Final = 10_001
GROUP: Final = 2_000
PATIENCE_S: Final = 60.0

needs_pods = pytest.mark.skipif(
    os.geteuid() != 0 or not (shutil.which("setpriv") and shutil.which("unshare")),
    reason="needs root, setpriv and unshare",
)
# Mounts the volume and the Secret on places of the same mount namespace that this process sees as folders.
_MOUNT: Final = """
mount --bind "$0/volume" "$0/volume"
mount --bind "$0/secret" "$0/secret" && mount -o remount,bind,ro "$0/secret"
exec "$@"
"""


class Pod:
    """A pod with a volume and a Secret, whose processes run one after another."""

    def __init__(self, folder: Path, *, user: int = USER) -> None:
        self._folder = folder
        self._user = user
        self.volume = folder / "volume"
        self.secret = folder / "secret"
        self.volume.mkdir()
        self.secret.mkdir()
        for place in (folder, *folder.parents):
            place.chmod(place.stat().st_mode | 0o711)

    def start(self) -> None:
        """Changes the volume as the kubelet does before each start."""
        for root, _, names in os.walk(self.volume):
            os.chown(root, -1, GROUP)
            os.chmod(root, os.stat(root).st_mode | 0o2770)
            for name in names:
                path = f"{root}/{name}"
                os.chown(path, -1, GROUP)
                os.chmod(path, os.stat(path).st_mode | 0o660)

    def add_secret(self, name: str, content: str, *, mode: int = 0o440) -> Path:
        """Returns the path of a file of the Secret."""
        version = self.secret / "..2026_01_01"
        if not version.exists():
            version.mkdir()
            (self.secret / "..data").symlink_to(version.name)
        file = version / name
        file.write_text(content)
        os.chown(file, 0, GROUP)
        file.chmod(mode)
        link = self.secret / name
        link.symlink_to(f"..data/{name}")
        return link

    def run(self, code: str, *arguments: object) -> str:
        """Runs a program in the pod. Returns its output."""
        user = ["setpriv", f"--reuid={self._user}", f"--regid={self._user}", f"--groups={GROUP}"]
        if self._user:
            # Python's own files and those of this tree may be in folders of root.
            user += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
        command = ["unshare", "--mount", "sh", "-ec", _MOUNT, str(self._folder), *user, sys.executable, "-c", code]
        ran = subprocess.run(
            [*command, *map(str, arguments)],
            cwd=tree.ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout
