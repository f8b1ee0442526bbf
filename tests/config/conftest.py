"""Path of a configuration file, which does not exist yet."""

from pathlib import Path

import pytest


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kactl.toml"
