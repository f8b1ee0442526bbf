"""Configuration files in the documentation: each is accepted as it is written, and a laptop's starts."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kactl.admin.exposure import checked
from kactl.config.file import load
from kactl.config.settings import Config
from tests.cli.server import QUICK, Up
from tests.support import tree

PAGES: Final = ("docs/security.md", "docs/operating.md", "docs/stores.md", "docs/promises.md", "README.md")
BLOCK: Final = re.compile(r"```toml\n(.*?)```", re.DOTALL)
# Files of other kinds: contexts of commands, and tokens.
OTHERS: Final = ("[contexts", "[[token")
# In the smallest file only.
LAPTOP: Final = 'path = "kactl.db"'


def documented() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for number, text in enumerate(BLOCK.findall((tree.ROOT / page).read_text(encoding="utf-8")), 1):
            if not text.startswith(OTHERS):
                yield f"{page} {number}", text


def read(text: str, folder: Path) -> Config:
    """Returns a part of a file with the one key that every file needs."""
    file = folder / "kactl.toml"
    file.write_text(text if "node-id" in text else f"node-id = 1\n{text}", encoding="utf-8")
    return load(file, {}, {})


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in documented()])
def test_documented_file_is_accepted(text: str, tmp_path: Path) -> None:
    read(text, tmp_path)


def test_file_of_a_secured_cluster_secures_everything(tmp_path: Path) -> None:
    (text,) = [text for _, text in documented() if "set-acl = true" in text]
    config = read(text, tmp_path)

    assert (config.store.tls, config.store.set_acl, config.kafka.authenticates) == (True, True, True)
    assert config.kafka.client.sasl_mechanism == "SCRAM-SHA-512"
    assert config.kafka.advertised[0].protocol == "SASL_SSL"
    assert (config.api.tls.client_auth, config.audit.required) == ("optional", True)
    assert checked(config) == ()


def test_file_with_client_certificates_authenticates_clients(tmp_path: Path) -> None:
    (text,) = [text for _, text in documented() if "principal-rules" in text]

    assert read(text, tmp_path).kafka.authenticates


@pytest.mark.slow
def test_file_of_a_laptop_starts(tmp_path: Path) -> None:
    """The smallest file. Folder and port of the test take precedence over those of the file."""
    file = tmp_path / "kactl.toml"
    (text,) = [text for _, text in documented() if LAPTOP in text]
    file.write_text(text, encoding="utf-8")
    up = Up(tmp_path, "--config", str(file), env=QUICK)
    try:
        assert up("topic", "create", "orders").code == 0  # without any credential of its own
    finally:
        up.close()
