"""`kactl status`: the table, the exit codes, and waiting for a cluster to be healthy."""

import json
import re
import subprocess
import sys
from pathlib import Path

import click

from kactl.admin.schema import ClusterInfo
from kactl.cli.root import ENTRIES
from kactl.cli.root import kactl as root
from tests.support.processes import free_port

from .server import Up, kactl


def test_healthy_cluster_exits_with_0(own_up: Up) -> None:
    own_up("topic", "create", "bread", "--replication-factor", "3")

    text = own_up("status")
    info = own_up("status", "-o", "json").json(ClusterInfo)
    lines = own_up("status", "-o", "jsonl").jsonl(ClusterInfo)

    assert text.code == 0
    headline, header, *rows = text.out.splitlines()
    assert headline.startswith("CLUSTER kactl   HEALTHY   controller 0* (epoch 1")
    assert "brokers 3/3   topics 1   partitions 1" in headline
    assert header.split() == ["CHECK", "RESULT", "VALUE", "LIMIT", "DETAIL"]
    assert [row.split()[0] for row in rows] == [check.name for check in info.checks]
    assert info.status == lines[0].status == "healthy"


def test_exit_codes_of_warnings_and_failures_and_waiting(own_up: Up) -> None:
    """A drained broker is a warning, a killed one a failure; the wait ends when the cluster is healthy again."""
    own_up("topic", "create", "bread", "--assignment", "0:1,2")
    own_up("broker", "drain", "2")
    warned, as_error = own_up("status"), own_up("status", "--warn-as-error")
    own_up("broker", "drain", "--undo", "2")
    own_up("broker", "kill", "2")
    own_up.until(lambda: own_up("status").code == 4, "the check of brokers to fail")

    failed = own_up("status")
    late = own_up("status", "--exit-when-healthy", "--timeout", "1", "--interval", "0.2", "-o", "json")
    command = [sys.executable, "-m", "kactl.cli", "--server", own_up.url, "status", "--exit-when-healthy"]
    with subprocess.Popen([*command, "--interval", "0.2"], stdout=subprocess.PIPE, text=True) as waiting:
        own_up("broker", "restart", "2")
        out, _ = waiting.communicate(timeout=60)

    assert (warned.code, as_error.code) == (0, 5)
    assert "DEGRADED" in warned.out
    assert "drained-brokers: kactl broker drain --undo 2" in warned.err
    assert failed.code == late.code == 4
    assert re.search(r"^unreachable-brokers +FAIL +1 +0 +not registered: 2$", failed.out, re.MULTILINE)
    assert "Not healthy within 1 s." in late.err
    assert json.loads(late.out)["status"] == "unhealthy"
    assert waiting.returncode == 0
    assert out.count("CLUSTER") == 1
    assert "FAIL" not in out


def test_unreachable_server_exits_with_3_also_after_waiting() -> None:
    server = f"http://127.0.0.1:{free_port()}"

    once = kactl("--server", server, "status")
    waited = kactl("--server", server, "status", "--exit-when-healthy", "--timeout", "0.5", "--interval", "0.1")

    assert once.code == waited.code == 3
    assert "cannot be reached" in once.err
    assert "Not healthy within 0.5 s." in waited.err


def test_watch_repeats_the_checks(own_up: Up) -> None:
    command = [sys.executable, "-m", "kactl.cli", "--server", own_up.url, "status", "--watch", "--interval", "0.1"]
    with subprocess.Popen([*command, "-o", "jsonl"], stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        states = [json.loads(watching.stdout.readline())["status"] for _ in range(3)]
        watching.terminate()

    assert states == ["healthy"] * 3


def test_list_of_commands_repeats_their_help_in_order() -> None:
    context = click.Context(root)

    for name, entry in ENTRIES.items():
        command = root.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert command.get_short_help_str(limit=100) == entry.help
    assert root.list_commands(context) == list(ENTRIES)


def test_help_and_status_do_not_import_heavy_packages(tmp_path: Path) -> None:
    """The start-up time of `kactl --help` and `kactl status` is mainly that of their imports."""
    frameworks = ("aiohttp", "anyio", "asyncio", "kazoo", "kio", "numpy", "opentelemetry", "pyarrow", "pyspark", "rich")
    for arguments, heavy in (
        (["--help"], (*frameworks, "kactl.cli.get", "http.client")),
        (["status", "--server", f"http://127.0.0.1:{free_port()}"], (*frameworks, "kactl.cli.get")),
    ):
        script = (
            "import sys\nfrom kactl.cli.main import main\nsys.argv[1:] = " + repr(arguments) + "\n"
            "try:\n    main()\nfinally:\n"
            f"    print('LOADED', sorted(set({heavy!r}) & set(sys.modules)), file=sys.stderr)\n"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)

        assert "LOADED []" in done.stderr, (arguments, done.stderr)
