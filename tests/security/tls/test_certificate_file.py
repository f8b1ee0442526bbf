"""Errors about PEM files name the file and its fault."""

import ssl
import subprocess
from pathlib import Path

import pytest

from kactl.model.errors import BadConfig
from kactl.security.tls.certificate_file import load_authorities, load_pair
from tests.support.certificates import Authority


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two certificates with their keys, and files that cannot be used."""
    path = tmp_path_factory.mktemp("pem")
    authority = Authority(path)
    for name in ("a", "b"):
        authority.sign(name)
    (path / "empty").touch(mode=0o600)
    locked: list[str | Path] = [
        "openssl",
        "pkey",
        "-in",
        path / "a.key",
        "-aes256",
        "-passout",
        "pass:x",
        "-out",
        path / "locked.key",
    ]
    subprocess.run(locked, check=True, capture_output=True)
    return path


@pytest.mark.parametrize(
    ("cert", "key", "setting", "reason"),
    [
        ("gone", "a.key", "cert", "gone cannot be read (No such file or directory)"),
        ("a.pem", "gone", "key", "gone cannot be read (No such file or directory)"),
        ("empty", "a.key", "cert", "empty contains no certificate in PEM"),
        ("a.key", "a.key", "cert", "a.key contains no certificate in PEM"),
        ("a.pem", "empty", "key", "empty contains no private key in PEM"),
        ("a.pem", "b.key", "key", "b.key does not belong to the certificate in"),
        ("a.pem", "locked.key", "key", "locked.key has a passphrase"),
    ],
)
def test_unusable_file_is_named_with_its_fault(folder: Path, cert: str, key: str, setting: str, reason: str) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)

    with pytest.raises(BadConfig) as refused:
        load_pair(context, str(folder / cert), str(folder / key), "api.tls")

    assert str(refused.value).startswith(f"api.tls.{setting}: ")
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("file", "reason"), [("gone", "gone cannot be read"), ("a.key", "contains no certificate in PEM")]
)
def test_unusable_authority_is_named(folder: Path, file: str, reason: str) -> None:
    with pytest.raises(BadConfig, match=rf"^tls\.ca: .*{reason}"):
        load_authorities(ssl.create_default_context(), str(folder / file), "tls.ca")
