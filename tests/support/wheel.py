"""The wheel of kactl, built from the tracked files."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from . import tree


def build_wheel(folder: Path) -> Path:
    """Build the wheel in a folder. Returns its file."""
    source = folder / "source"
    for file in tree.tracked_files():
        if not file.is_symlink():  # the wheel must not depend on the links
            copy = source / file.relative_to(tree.ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    wheel = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source)]
    done = subprocess.run([*pip, *wheel], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("kactl-*.whl")
    return built


def unpacked_wheel(folder: Path) -> Path:
    """Build the wheel in a folder, and unpack it. Returns where its packages are."""
    packages = folder / "packages"
    with zipfile.ZipFile(build_wheel(folder)) as wheel:
        wheel.extractall(packages)
    return packages
