"""The defaults of `kactl up`, which are the same with and without a configuration file."""

from pathlib import Path

import pytest

from kactl.cli import up
from kactl.cli.exits import Failure

from .server import START_S, Up, kactl


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def file(text: str) -> str:
    Path("kactl.toml").write_text(text)
    return "kactl.toml"


def test_a_file_that_says_nothing_changes_nothing() -> None:
    assert up.read_config(file("[api]\n"), {}) == up.read_config(None, {})


def test_defaults_suit_a_cluster_in_one_process() -> None:
    config = up.read_config(None, {})

    assert (config.node_id, config.store.session_timeout) == (0, 4_000)
    assert (config.store.path, config.log.folder) == (".kactl/kactl.db", ".kactl/log")
    assert config.log.segments * config.log.segment_bytes == 64 << 20


def test_a_file_and_the_environment_go_before_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KACTL_LOG__FOLDER", "")
    said = 'node-id = 7\n[store]\nsession-timeout = "18s"\npath = "a/b.db"\n[log]\nsegments = 9\n'

    config = up.read_config(file(said), {})

    assert (config.node_id, config.store.session_timeout, config.store.path) == (7, 18_000, "a/b.db")
    assert (config.log.folder, config.log.segments) == ("", 9)


def test_the_log_stands_beside_the_store() -> None:
    assert up.read_config(None, {"store.path": "x/kactl.db"}).log.folder == "x/log"


def test_a_cluster_that_an_earlier_version_kept_in_the_working_directory_is_found() -> None:
    Path("kactl.db").touch()

    assert up.read_config(file(""), {}).store.path == "kactl.db"
    assert up.read_config(None, {}).store.path == ".kactl/kactl.db"


def test_a_section_that_is_none_is_refused() -> None:
    with pytest.raises(Failure, match="store"):
        up.read_config(file("node-id = 1\nstore = 3\n"), {})


def test_the_effective_values_are_stated(tmp_path: Path) -> None:
    Path("kactl.toml").write_text("[participants]\ncount = 1\n")
    server = Up(tmp_path, "--config", "kactl.toml", env={})
    try:
        server.process.wait_for_line("timeout  4 s until a broker that was killed counts as dead", START_S)
        server.process.wait_for_line(f"history  {server.data_dir / 'log'}", START_S)
    finally:
        server.close()


def test_the_configuration_is_shown_as_up_would_use_it() -> None:
    file("")

    shown = kactl("config", "show", "--up", cwd=Path.cwd())

    assert shown.code == 0
    assert 'session-timeout = "4000ms"' in shown.out
    assert 'folder = ".kactl/log"' in shown.out
