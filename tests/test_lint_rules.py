"""`make lint` finds each construct that SECURITY.md excludes from the product."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tree import ROOT, tracked_files

PLANTED = {
    "S102": "exec(input())\n",
    "S301": "import pickle\n\npickle.loads(b'')\n",
    "S307": "eval(input())\n",
    "S324": "import hashlib\n\nhashlib.md5(b'')\n",
    "S323": "import ssl\n\nssl._create_unverified_context()\n",
    "S602": "import subprocess\n\nsubprocess.run('ls', shell=True, check=True)\n",
    "S605": "import os\n\nos.system('ls ' + input())\n",
}


@pytest.mark.parametrize("rule", PLANTED)
def test_planted_line_is_found(rule: str, tmp_path: Path) -> None:
    """The project's own configuration, as for a module of the product."""
    (tmp_path / "kactl").mkdir()
    file = tmp_path / "kactl" / "planted.py"
    file.write_text(PLANTED[rule])
    config = ROOT / "pyproject.toml"
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--no-cache",
        "--config",
        str(config),
        "--output-format",
        "concise",
    ]

    done = subprocess.run([*command, str(file)], capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 1
    assert rule in done.stdout


COMPARED_ELSEWHERE = {
    # Compared with the setting of a program's own context, which is refused without logins.
    "CERT_NONE": ["kactl/kafka/embedded_listener.py"],
    # The identities of the tcp network are URIs, which its own handshake compares; certificates are verified too.
    "check_hostname = False": ["transports/tcp/tls.py"],
    # Clients without a certificate are anonymous on a listener; a certificate that a client sends is verified.
    "CERT_OPTIONAL": ["kactl/security/tls/server_tls.py"],
}


@pytest.mark.parametrize("setting", ["check_hostname = False", "CERT_NONE", "CERT_OPTIONAL"])
def test_certificates_are_verified_everywhere(setting: str) -> None:
    """Rules of the linter know libraries, but not the attributes of a context."""
    product = [path for folder in ("kactl", "actors", "transports") for path in (ROOT / folder).rglob("*.py")]

    assert len(product) > 500
    found = [str(path.relative_to(ROOT)) for path in product if setting in path.read_text()]
    assert found == COMPARED_ELSEWHERE.get(setting, [])


CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time", "time", "monotonic_ns", "perf_counter_ns"}


class Durations(ast.NodeVisitor):
    """Finds assertions in a function that a duration is below something, which a slow machine fails.

    Attributes:
        found: their lines.
    """

    def __init__(self) -> None:
        self.found: list[int] = []
        self._readings: set[str] = set()
        self._durations: set[str] = set()

    def visit_Assign(self, node: ast.Assign) -> None:
        names = {part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)}
        if self._has_duration(node.value):
            self._durations |= names
        elif self._has_reading(node.value):
            self._readings |= names

    def visit_Assert(self, node: ast.Assert) -> None:
        for compared in ast.walk(node.test):
            if isinstance(compared, ast.Compare):
                sides = [compared.left, *compared.comparators]
                for operator, left, right in zip(compared.ops, sides, sides[1:], strict=False):
                    smaller = {ast.Lt: left, ast.LtE: left, ast.Gt: right, ast.GtE: right}.get(type(operator))
                    if smaller is not None and self._has_duration(smaller):
                        self.found.append(node.lineno)

    def _has_duration(self, node: ast.AST) -> bool:
        """Returns whether an expression contains a difference of readings of a clock, or the name of one."""
        return any(
            (isinstance(part, ast.Name) and part.id in self._durations)
            or (isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub) and self._has_reading(part))
            for part in ast.walk(node)
        )

    def _has_reading(self, node: ast.AST) -> bool:
        return any(
            (isinstance(part, ast.Name) and part.id in self._readings)
            or (isinstance(part, ast.Call) and not part.args and ast.unparse(part.func).rpartition(".")[2] in CLOCKS)
            for part in ast.walk(node)
        )


def limited_durations(source: str) -> list[int]:
    """Returns the lines of such assertions in a module."""
    found = []
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            durations = Durations()
            durations.visit(function)
            found += durations.found
    return found


@pytest.mark.parametrize(
    ("assertion", "is_found"),
    [
        ("time.monotonic() - began < 5", True),
        ("5 > took", True),
        ("worst <= 1 and True", True),
        ("took > 5", False),  # a slow machine does not fail it
        ("time.monotonic() < began + 60, 'a hang'", False),
    ],
)
def test_planted_limit_of_a_duration_is_found(assertion: str, is_found: bool) -> None:
    lines = ["def test() -> None:", "began = time.monotonic()", "took = time.monotonic() - began"]
    lines += ["worst = max(worst, took)", f"assert {assertion}"]

    assert limited_durations("\n    ".join(lines)) == ([5] if is_found else [])


def test_no_test_expects_a_duration_below_a_limit() -> None:
    """Verdicts count steps, bytes or events, or units of `tests.support.processor_time`."""
    tests = [path for path in tracked_files() if path.suffix == ".py" and (ROOT / "tests") in path.parents]

    assert len(tests) > 800
    assert {str(path): lines for path in tests if (lines := limited_durations(path.read_text()))} == {}
