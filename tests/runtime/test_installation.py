"""Commands that install an extra: from a tree, from a folder that was installed, and by name."""

import importlib.metadata
import json
from pathlib import Path

import pytest

from kactl.runtime import installation
from tests.support.tree import ROOT


class Distribution:
    def __init__(self, url: str | None) -> None:
        self._url = url

    def read_text(self, _: str) -> str | None:
        return None if self._url is None else json.dumps({"url": self._url})


def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str | None) -> None:
    """Let kactl be a copy outside of any tree, which pip has installed from a URL; by name if it is None."""
    monkeypatch.setattr(installation, "__file__", str(tmp_path / "site-packages/kactl/runtime/installation.py"))
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: Distribution(url))


def test_tree_in_use_is_installed_as_it_is() -> None:
    assert installation.install("server,etcd") == f"pip install -e '{ROOT}[server,etcd]'"


def test_copy_is_installed_again_from_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "a tree"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    installed(monkeypatch, tmp_path, folder.as_uri())

    assert installation.install("otlp") == f"pip install '{folder}[otlp]'"


@pytest.mark.parametrize("url", [None, "file:///a/folder/that/has/gone", "https://index.example/kactl.whl"])
def test_copy_without_its_folder_is_extended_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str | None
) -> None:
    installed(monkeypatch, tmp_path, url)

    assert installation.install("otlp") == "pip install 'kactl[otlp]'"
