"""Signatures of a release: with a key that is made for the test."""

import subprocess
from pathlib import Path

import pytest

from tests.support import tree

RELEASE = tree.ROOT / ".ci" / "release"


def new_key(folder: Path, name: str) -> Path:
    """Returns the private key; the file of signers with its public part is beside it, as NAME.signers."""
    key = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key], check=True)
    public = key.with_suffix(".pub").read_text(encoding="ascii")
    key.with_suffix(".signers").write_text(f"release@kactl {public}", encoding="ascii")
    return key


def run(*arguments: str | Path) -> int:
    return subprocess.run([RELEASE, *arguments], capture_output=True, check=False).returncode


@pytest.fixture
def signed(tmp_path: Path) -> tuple[Path, Path]:
    """The file of signers, and the folder of a signed release."""
    folder = tmp_path / "dist"
    folder.mkdir()
    for name in ("kactl-1.0-py3-none-any.whl", "kactl-1.0.tar.gz", "kactl-all.cdx.json"):
        (folder / name).write_text(name)
    key = new_key(tmp_path, "key")
    assert run("sign", key, folder) == 0
    return key.with_suffix(".signers"), folder


def test_signed_release_is_verified(signed: tuple[Path, Path]) -> None:
    """S-89."""
    assert run("verify", *signed) == 0


@pytest.mark.parametrize("name", ["kactl-1.0.tar.gz", "SHA256SUMS", "SHA256SUMS.sig"])
def test_changed_file_is_refused(name: str, signed: tuple[Path, Path]) -> None:
    file = signed[1] / name
    content = file.read_text()
    middle = len(content) // 2
    file.write_text(content[:middle] + ("A" if content[middle] != "A" else "B") + content[middle + 1 :])

    assert run("verify", *signed) != 0


def test_missing_and_added_files_are_refused(signed: tuple[Path, Path]) -> None:
    added = signed[1] / "kactl-2.0.tar.gz"
    added.touch()
    assert run("verify", *signed) != 0

    added.unlink()
    assert run("verify", *signed) == 0
    (signed[1] / "kactl-1.0.tar.gz").unlink()
    assert run("verify", *signed) != 0


def test_signature_of_another_key_or_for_another_purpose_is_refused(signed: tuple[Path, Path], tmp_path: Path) -> None:
    signers, folder = signed
    other = new_key(tmp_path, "other")
    assert run("verify", other.with_suffix(".signers"), folder) != 0

    (folder / "SHA256SUMS.sig").unlink()
    key = signers.with_suffix("")
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", "file", folder / "SHA256SUMS"], check=True)
    assert run("verify", signers, folder) != 0
