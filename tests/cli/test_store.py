"""`kactl store`: backups beside a running server, and restores."""

from pathlib import Path

import pytest

from kactl.cli.exits import Exit
from kactl.cli.store import Result

from .server import STOP_S, Up, kactl


@pytest.mark.slow
def test_backup_of_a_running_server_is_restored_after_its_end(own_up: Up, tmp_path: Path) -> None:
    store, backup = own_up.data_dir / "kactl.db", tmp_path / "backup.db"
    assert own_up("topic", "create", "before", "--partitions", "3").code == Exit.DONE
    made = kactl("store", "backup", backup, "--store", store, "-o", "json")
    assert own_up("topic", "create", "later", "--partitions", "3").code == Exit.DONE
    refused = kactl("store", "restore", backup, "--store", store)
    epoch = own_up.epoch()
    own_up.process.stop(STOP_S)

    restored = kactl("store", "restore", backup, "--store", store, "-o", "json")
    own_up.start()

    assert made.json(Result).partitions == 3
    assert refused.code == Exit.FAILED
    assert "is in use by another process: stop every controller" in refused.err
    assert Path(restored.json(Result).replaced or "").exists()
    assert {partition.topic for partition in own_up.partitions()} == {"before"}
    assert own_up.epoch() > epoch + 1_000_000


def test_backup_of_nothing_names_the_file(tmp_path: Path) -> None:
    done = kactl("store", "backup", tmp_path / "copy", "--store", tmp_path / "missing.db")

    assert done.code == Exit.FAILED
    assert f"{tmp_path}/missing.db: there is no such store" in done.err


def test_two_stores_are_refused(tmp_path: Path) -> None:
    done = kactl("store", "backup", tmp_path / "copy", "--store", "a.db", "--config", "b.toml")

    assert done.code == Exit.USAGE
    assert "name one of the two" in done.err


def test_store_in_etcd_has_a_page_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "kactl.toml").write_text('node-id = 1\n[store]\nkind = "etcd"\nendpoints = ["http://127.0.0.1:2379"]\n')

    done = kactl("store", "backup", tmp_path / "copy", "--config", tmp_path / "kactl.toml")

    assert done.code == Exit.USAGE
    assert "store.kind is etcd" in done.err
    assert "docs/how-to/back-up-and-restore.md" in done.err
