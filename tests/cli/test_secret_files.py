"""Files with secrets: accepted contents, and error messages."""

import os
from pathlib import Path

import pytest

from kactl.cli.secret_files import read_secret
from kactl.model.errors import BadConfig

KEY = "store.password-file"


def _file(folder: Path, content: bytes, mode: int = 0o600) -> str:
    path = folder / "password"
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize("content", [b"hunter 2\n", b"hunter 2\r\nmore\n", b"hunter 2"])
@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_first_line_is_the_secret(tmp_path: Path, content: bytes, mode: int) -> None:
    assert read_secret(_file(tmp_path, content, mode), KEY).reveal() == b"hunter 2"


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o601, 0o644, 0o666])
def test_file_that_others_can_use_is_rejected(tmp_path: Path, mode: int) -> None:
    path = _file(tmp_path, b"hunter2", mode)

    with pytest.raises(BadConfig, match=f"{KEY}: others can use {path}.*chmod 600 {path}") as raised:
        read_secret(path, KEY)

    assert "hunter2" not in str(raised.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a file of another user")
def test_file_of_another_user_is_rejected(tmp_path: Path) -> None:
    path = _file(tmp_path, b"hunter2")
    os.chown(path, 65_534, -1)

    with pytest.raises(BadConfig, match="belongs to user 65534"):
        read_secret(path, KEY)


@pytest.mark.parametrize(("content", "reason"), [(b"", "is empty"), (b"\nsecond", "is empty"), (b"\xff", "not text")])
def test_useless_file_is_rejected(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(BadConfig, match=reason):
        read_secret(_file(tmp_path, content), KEY)


def test_missing_file_is_named() -> None:
    with pytest.raises(BadConfig, match="/none cannot be read: No such file"):
        read_secret("/none", KEY)
