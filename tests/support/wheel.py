"""The wheel and the source distribution of kactl, built from the tracked files."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from . import tree


def build_wheel(folder: Path, **environment: str) -> Path:
    """Build the wheel in a folder, with more variables in the environment. Returns its file."""
    source = _sources(folder)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    wheel = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source)]
    variables = {**os.environ, **environment}
    done = subprocess.run([*pip, *wheel], capture_output=True, text=True, check=False, env=variables)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("kactl-*.whl")
    return built


def build_sdist(folder: Path, **environment: str) -> Path:
    """Build the source distribution in a folder, with more variables in the environment. Returns its file."""
    build = [sys.executable, str(tree.ROOT / ".ci" / "sdist"), str(_sources(folder)), str(folder)]
    variables = {**os.environ, **environment}
    done = subprocess.run(build, capture_output=True, text=True, check=False, env=variables)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("kactl-*.tar.gz")
    return built


def _sources(folder: Path) -> Path:
    """Returns a copy of the tracked files."""
    source = folder / "source"
    if not source.exists():
        for file in tree.tracked_files():
            if not file.is_symlink():  # a distribution must not depend on the links
                copy = source / file.relative_to(tree.ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)
    return source


def unpacked_wheel(folder: Path) -> Path:
    """Build the wheel in a folder, and unpack it. Returns where its packages are."""
    packages = folder / "packages"
    with zipfile.ZipFile(build_wheel(folder)) as wheel:
        wheel.extractall(packages)
    return packages
