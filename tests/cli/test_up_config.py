"""Defaults of `kactl up`, which are the same with and without a configuration file."""

from pathlib import Path

import pytest

from kactl.cli import up
from kactl.cli.exits import Failure

from .server import START_S, Up, kactl


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_file(text: str) -> str:
    Path("kactl.toml").write_text(text)
    return "kactl.toml"


def test_empty_file_has_the_defaults_of_no_file() -> None:
    assert up.read_config(write_file("[api]\n"), {}) == up.read_config(None, {})


def test_defaults_suit_a_cluster_in_one_process() -> None:
    config = up.read_config(None, {})

    assert (config.node_id, config.store.session_timeout) == (0, 3_000)
    assert (config.store.path, config.log.folder) == (".kactl/kactl.db", ".kactl/log")
    assert config.log.segments * config.log.segment_bytes == 64 << 20


def test_file_and_environment_override_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KACTL_LOG__FOLDER", "")
    text = 'node-id = 7\n[store]\nsession-timeout = "18s"\npath = "a/b.db"\n[log]\nsegments = 9\n'

    config = up.read_config(write_file(text), {})

    assert (config.node_id, config.store.session_timeout, config.store.path) == (7, 18_000, "a/b.db")
    assert (config.log.folder, config.log.segments) == ("", 9)


def test_default_log_folder_is_beside_the_store() -> None:
    assert up.read_config(None, {"store.path": "x/kactl.db"}).log.folder == "x/log"


def test_store_in_the_working_directory_is_still_used() -> None:
    Path("kactl.db").touch()

    assert up.read_config(write_file(""), {}).store.path == "kactl.db"
    assert up.read_config(None, {}).store.path == ".kactl/kactl.db"


def test_invalid_section_is_rejected() -> None:
    with pytest.raises(Failure, match="store"):
        up.read_config(write_file("node-id = 1\nstore = 3\n"), {})


def test_unfit_store_of_the_environment_is_named_without_a_file() -> None:
    """There is no configuration file whose name the error could have."""
    done = kactl("up", env={"KACTL_STORE__KIND": "zookeeper", "KACTL_STORE__CONNECT": "127.0.0.1:1"})

    assert done.err.startswith("error: configuration: store.kind: `kactl up` stores its cluster in SQLite or etcd")


def test_effective_values_are_printed_at_start(tmp_path: Path) -> None:
    Path("kactl.toml").write_text("[participants]\ncount = 1\n")
    server = Up(tmp_path, "--config", "kactl.toml", env={})
    try:
        server.process.wait_for_line("timeout  3 s until a killed broker counts as dead", START_S)
        server.process.wait_for_line(f"history  {server.data_dir / 'log'}", START_S)
    finally:
        server.close()


def test_config_show_has_the_defaults_of_up() -> None:
    write_file("")

    shown = kactl("config", "show", "--up", cwd=Path.cwd())

    assert shown.code == 0
    assert 'session-timeout = "3000ms"' in shown.out
    assert 'folder = ".kactl/log"' in shown.out
