"""Mutation score, and covered branches, of the modules that decide about logins and access, and of those for TLS.

Run as `python -m tests.mutation [--share N] [--module PATH] [--branches]`, or by `make security-score`. The tests of a
module are collected once, and run for each of its mutants in a fork of that process, with the code of the mutant in the
functions of the module; a test has to fail. For a mutant that none notices the tests are imported once more, with its
code: some call the module while they are imported. Edits outside of functions, such as of constants, are left out. It
prints the survivors and the scores, and fails if a module has less than `SCORE_MIN`. With `--branches` the tests of a
module run once, and it prints the outcomes of conditions that none has.
"""

import argparse
import gc
import json
import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final

import pytest

import kactl

from .branches import Branches, Outcome, outcomes
from .edits import Mutant, mutants

ROOT: Final = Path(kactl.__file__).resolve().parent.parent
# The modules, and the tests that must notice their mutants.
MODULES: Final[dict[str, tuple[str, ...]]] = {
    "kactl/security/sasl/digest_md5.py": ("tests/security/sasl/test_digest_md5.py",),
    "kactl/security/sasl/scram.py": ("tests/security/sasl/test_scram.py", "tests/security/sasl/test_scram_server.py"),
    "kactl/security/access/authorizer.py": ("tests/security/access/test_acls.py",),
    "kactl/security/access/acls.py": ("tests/security/access/test_acls.py",),
    "kactl/security/access/der.py": (
        "tests/security/access/test_distinguished_name.py",
        "tests/security/access/test_validity.py",
    ),
    "kactl/security/access/distinguished_name.py": ("tests/security/access/test_distinguished_name.py",),
    "kactl/security/access/principal.py": ("tests/security/access/test_principal.py",),
    "kactl/security/access/principal_rules.py": ("tests/security/access/test_principal_rules.py",),
    "kactl/security/access/tickets.py": ("tests/security/access/test_tickets.py",),
    "kactl/security/access/tokens.py": (
        "tests/security/access/test_tokens.py",
        "tests/security/access/test_token_cost.py",
    ),
    "kactl/security/access/validity.py": ("tests/security/access/test_validity.py",),
    "kactl/security/tls/encryption.py": ("tests/transports/kafka/listener/test_encryption.py",),
    "kactl/security/tls/tls_records.py": ("tests/security/tls/test_tls_records.py",),
    "kactl/security/tls/tls_turns.py": ("tests/security/tls/test_tls_turns.py",),
    "kactl/security/tls/server_tls.py": (
        "tests/security/tls/test_server_tls.py",
        "tests/admin/test_served_certificates.py",
        "tests/admin/test_client_certificates.py",
        "tests/admin/test_exposure.py",
    ),
    "kactl/transports/tcp/tls.py": ("tests/transports/tcp/test_handshake.py", "tests/transports/tcp/test_endpoints.py"),
}
SCORE_MIN: Final = 0.9
_ARGUMENTS: Final = (
    "-q", "-x", "-n0", "-p", "no:cacheprovider", "--hypothesis-profile=check", "-m", "not long and not java",
    "-W", "ignore::pytest.PytestAssertRewriteWarning",
    # The modules are of the distribution of a pytest plugin: pytest would change the code of their asserts, too.
    "--assert=plain",
)  # fmt: skip
# A mutant that loops counts as noticed: after this time, or after this many times the time without a mutant.
_TIMEOUT_MIN_S: Final = 10
_TIMEOUT_FACTOR: Final = 10
# With the imports of the tests.
_TIMEOUT_ANEW_S: Final = 120
# What the exit codes of a run mean; a test has failed at any other one, such as that of the alarm.
_OUTCOMES: Final = {0: False, 3: None}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description="Score the tests of access.")
    parser.add_argument("--share", type=int, default=1, help="one in this many mutants")
    parser.add_argument("--module", action="append", help="of the list; all by default")
    parser.add_argument("--branches", action="store_true", help="print the covered branches in place of the score")
    options = parser.parse_args()
    if options.branches:
        for module in options.module or MODULES:
            print_branches(module)
        return
    noticed_in_all = tried_in_all = 0
    low = []
    for module in options.module or MODULES:
        noticed, tried = score(module, options.share)
        print(f"{module}: {noticed} of {tried} mutants are noticed", flush=True)
        noticed_in_all, tried_in_all = noticed_in_all + noticed, tried_in_all + tried
        if noticed < SCORE_MIN * tried:
            low.append(module)
    print(f"all: {noticed_in_all} of {tried_in_all}, {noticed_in_all / max(1, tried_in_all):.1%}")
    if low:
        sys.exit(
            f"fewer than {SCORE_MIN:.0%} of the mutants are noticed of {', '.join(low)}: add tests for the survivors"
        )


def score(module: str, share: int) -> tuple[int, int]:
    """Returns how many mutants are noticed, and how many were tried."""
    path, tests = ROOT / module, MODULES[module]
    chosen = list(mutants(path.read_text(encoding="utf-8")))[::share]
    results: list[bool | None] | None = _forked(_noticed, path, tests, chosen)
    if not results or results[0]:
        sys.exit(f"{module}: its tests fail without a mutant")
    del results[0]
    for number, mutant in enumerate(chosen):
        if results[number] is False:
            results[number] = _forked(_noticed_anew, path, tests, mutant) is not False
        if results[number] is False:
            print(f"survived: {module}:{mutant.line} {mutant.what}", flush=True)
    return results.count(True), len(results) - results.count(None)


def _noticed(path: Path, tests: tuple[str, ...], chosen: Sequence[Mutant]) -> list[bool | None]:
    """Returns whether a test fails without a mutant, and then for each one; see `Runs`."""
    runs = Runs(path, chosen)
    pytest.main([*_ARGUMENTS, *tests], plugins=[runs])
    return runs.outcomes


def _noticed_anew(path: Path, tests: tuple[str, ...], mutant: Mutant) -> bool:
    """Returns whether a test fails, or its import, with a mutant that is there before the tests are imported."""
    signal.alarm(_TIMEOUT_ANEW_S)
    replace(path, mutant)
    return pytest.main([*_ARGUMENTS, *tests]) != 0


class Runs:
    """A pytest plugin that runs the collected tests without a mutant, and then with each one, in forks of the process.

    Args:
        path: of the module.

    Attributes:
        outcomes: whether a test has failed in each run, the one without a mutant first; None if the mutant changes no
            function.
    """

    def __init__(self, path: Path, chosen: Sequence[Mutant]) -> None:
        self._path = path
        self._chosen = chosen
        self.outcomes: list[bool | None] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Yield to the loop in the forks, which run the tests; the first process runs none."""
        timeout_s, began_s = 0, time.monotonic()  # 0 is no alarm
        for mutant in (None, *self._chosen):
            child = os.fork()
            if child == 0:
                signal.alarm(timeout_s)
                if mutant is not None and not replace(self._path, mutant):
                    os._exit(3)
                try:
                    yield
                except BaseException:  # among others what `-x` raises
                    os._exit(1)
                os._exit(1 if session.testsfailed else 0)
            self.outcomes.append(_OUTCOMES.get(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), True))
            if self.outcomes[0]:
                break
            if mutant is None:
                timeout_s = max(_TIMEOUT_MIN_S, math.ceil(_TIMEOUT_FACTOR * (time.monotonic() - began_s)))
        session.items.clear()
        return (yield)


def print_branches(module: str) -> None:
    """Print the share of a module's branches that its tests cover, and the others."""
    path, tests = ROOT / module, MODULES[module]
    possible = outcomes(compile(path.read_text(encoding="utf-8"), str(path), "exec"))
    seen = _forked(_seen, path, tests)
    if seen is None:
        sys.exit(f"{module}: its tests fail")
    seen = set(map(tuple, seen))
    print(f"{module}: {len(possible & seen)} of {len(possible)} branches are covered", flush=True)
    for function, line, _, jumps in sorted(possible - seen):
        print(f"not covered: {module}:{line} in {function}: {'jump' if jumps else 'no jump'}", flush=True)


def _seen(path: Path, tests: tuple[str, ...]) -> list[Outcome] | None:
    """Returns the outcomes that the tests have; None if one fails."""
    branches = Branches(path)
    with branches.watching():
        code = pytest.main([*_ARGUMENTS, *tests], plugins=[_WatchedTests(branches)])
    return None if code else sorted(branches.seen)


class _WatchedTests:
    """A pytest plugin that begins to watch again in each test: one that exhausts the stack ends the tracing."""

    def __init__(self, branches: Branches) -> None:
        self._branches = branches

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        with self._branches.watching():
            return (yield)


def _forked(work: Callable[..., object], *arguments: object) -> Any:
    """Call a function in a fork of this process, and discard its output.

    Returns its result, through JSON: tuples become lists. None if it raises, or if the fork is killed by an alarm.
    """
    sys.stdout.flush()
    with tempfile.NamedTemporaryFile() as result:
        child = os.fork()
        if child == 0:
            try:
                for descriptor in (1, 2):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
                Path(result.name).write_text(json.dumps(work(*arguments)), encoding="utf-8")
                os._exit(0)
            finally:
                os._exit(1)
        if os.waitpid(child, 0)[1]:
            return None
        return json.loads(Path(result.name).read_text(encoding="utf-8"))


def replace(path: Path, mutant: Mutant) -> int:
    """Give the functions of a module the code of a mutant. Returns how many functions it changes."""
    __import__(".".join(path.relative_to(ROOT).with_suffix("").parts))
    known = _codes(compile(path.read_text(encoding="utf-8"), str(path), "exec"))
    wanted = {
        name: code for name, code in _codes(compile(mutant.tree, str(path), "exec")).items() if known[name] != code
    }
    changed = 0
    gc.unfreeze()  # frozen objects are not listed
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and Path(function.__code__.co_filename).name == path.name:
            code = wanted.get(function.__code__.co_qualname)
            if code is not None and function.__module__ == ".".join(path.relative_to(ROOT).with_suffix("").parts):
                function.__code__ = code
                changed += 1
    return changed


def _codes(code: CodeType) -> dict[str, CodeType]:
    """Returns the code of all functions of a module, by their qualified names."""
    found = {}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found[constant.co_qualname] = constant
            found.update(_codes(constant))
    return found


if __name__ == "__main__":
    main()
