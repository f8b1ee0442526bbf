"""Mutation score, and covered branches, of the modules that decide about logins and access, and of those for TLS.

Run as `python -m tests.mutation [--share N] [--module PATH] [--branches]`, or by `make security-score`. The tests of a
module run for each of its mutants, in a process of their own, with the code of the mutant in the functions of the
module; a test has to fail. Edits outside of functions, such as of constants, are left out. It prints the survivors and
the scores. With `--branches` the tests of a module run once, and it prints the outcomes of conditions that none has.
"""

import argparse
import contextlib
import gc
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from types import CodeType, FunctionType
from typing import Final

import pytest

import kactl

from .branches import Branches, outcomes
from .edits import Mutant, mutants

ROOT: Final = Path(kactl.__file__).resolve().parent.parent
# The modules, and the tests that must notice their mutants.
MODULES: Final[dict[str, tuple[str, ...]]] = {
    "kactl/sasl/digest_md5.py": ("tests/sasl/test_digest_md5.py",),
    "kactl/sasl/scram.py": ("tests/sasl/test_scram.py", "tests/sasl/test_scram_server.py"),
    "kactl/access/authorizer.py": ("tests/access/test_acls.py",),
    "kactl/access/acls.py": ("tests/access/test_acls.py",),
    "kactl/access/der.py": ("tests/access/test_distinguished_name.py", "tests/access/test_validity.py"),
    "kactl/access/distinguished_name.py": ("tests/access/test_distinguished_name.py",),
    "kactl/access/principal.py": ("tests/access/test_principal.py",),
    "kactl/access/principal_rules.py": ("tests/access/test_principal_rules.py",),
    "kactl/access/tickets.py": ("tests/access/test_tickets.py",),
    "kactl/access/tokens.py": ("tests/access/test_tokens.py", "tests/access/test_token_cost.py"),
    "kactl/access/validity.py": ("tests/access/test_validity.py",),
    "kactl/runtime/encryption.py": ("tests/transports/kafka/listener/test_encryption.py",),
    "kactl/runtime/server_tls.py": (
        "tests/runtime/test_server_tls.py",
        "tests/admin/test_served_certificates.py",
        "tests/admin/test_client_certificates.py",
        "tests/admin/test_exposure.py",
    ),
    "kactl/transports/tcp/tls.py": ("tests/transports/tcp/test_handshake.py", "tests/transports/tcp/test_endpoints.py"),
}
_ARGUMENTS: Final = (
    "-q", "-x", "-n0", "-p", "no:cacheprovider", "--hypothesis-profile=check", "-m", "not long and not java",
    "-W", "ignore::pytest.PytestAssertRewriteWarning",
    # The modules are of the distribution of a pytest plugin: pytest would change the code of their asserts, too.
    "--assert=plain",
)  # fmt: skip
# A mutant that loops counts as noticed.
_TIMEOUT_S: Final = 300


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
    for module in options.module or MODULES:
        noticed, tried = score(module, options.share)
        print(f"{module}: {noticed} of {tried} mutants are noticed", flush=True)
        noticed_in_all, tried_in_all = noticed_in_all + noticed, tried_in_all + tried
    print(f"all: {noticed_in_all} of {tried_in_all}, {noticed_in_all / max(1, tried_in_all):.1%}")


def score(module: str, share: int) -> tuple[int, int]:
    """Returns how many mutants are noticed, and how many were tried."""
    path, tests = ROOT / module, MODULES[module]
    if _run(tests, None, path):
        sys.exit(f"{module}: its tests fail without a mutant")
    noticed, tried = 0, 0
    for mutant in list(mutants(path.read_text(encoding="utf-8")))[::share]:
        outcome = _run(tests, mutant, path)
        if outcome is None:
            continue
        tried += 1
        noticed += outcome
        if not outcome:
            print(f"survived: {module}:{mutant.line} {mutant.what}", flush=True)
    return noticed, tried


def print_branches(module: str) -> None:
    """Print the share of a module's branches that its tests cover, and the others."""
    path, tests = ROOT / module, MODULES[module]
    possible = outcomes(compile(path.read_text(encoding="utf-8"), str(path), "exec"))
    sys.stdout.flush()
    with tempfile.NamedTemporaryFile() as results:
        child = os.fork()
        if child == 0:
            branches = Branches(path)
            with branches.watching():
                code = _child(tests, None, path)
            Path(results.name).write_text(json.dumps(sorted(branches.seen)), encoding="utf-8")
            os._exit(code)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            sys.exit(f"{module}: its tests fail")
        seen = {tuple(outcome) for outcome in json.loads(Path(results.name).read_text(encoding="utf-8"))}
    print(f"{module}: {len(possible & seen)} of {len(possible)} branches are covered", flush=True)
    for function, line, _, jumps in sorted(possible - seen):
        print(f"not covered: {module}:{line} in {function}: {'jump' if jumps else 'no jump'}", flush=True)


def _run(tests: tuple[str, ...], mutant: Mutant | None, path: Path) -> bool | None:
    """Returns whether a test fails; None if the mutant changes no function."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os._exit(_child(tests, mutant, path))
    return {0: False, 3: None}.get(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), True)


def _child(tests: tuple[str, ...], mutant: Mutant | None, path: Path) -> int:
    signal.alarm(_TIMEOUT_S)
    with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        os.dup2(nowhere.fileno(), 2)
        if mutant is not None and not replace(path, mutant):
            return 3
        return 1 if pytest.main([*_ARGUMENTS, *tests]) else 0


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
