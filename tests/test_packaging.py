"""The wheel contains the tree under its import names, with declared and pinned dependencies."""

import ast
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from kactl.cli.main import EXTRA_OF
from tests.support import tree
from tests.support.jars import REQUIRE
from tests.support.wheel import build_sdist, build_wheel

IMPORT_ALL = """
import importlib, json, sys
for name in json.load(sys.stdin):
    importlib.import_module(name)
print(json.dumps(sorted(sys.modules)))
"""


def test_listed_packages_are_the_existing_folders() -> None:
    listed = tree.pyproject()["tool"]["setuptools"]["packages"]

    assert len(listed) == len(set(listed))
    assert set(listed) == tree.packages()


def test_every_module_is_in_a_package() -> None:
    lost = {str(file) for file in tree.modules().values() if not (file.parent / "__init__.py").exists()}

    assert not lost


def test_every_module_is_imported_as_part_of_kactl_only() -> None:
    names = [name for name in tree.modules() if not name.endswith("__main__")]

    # In the tree, where `import actors` would succeed by mistake.
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORT_ALL],
        cwd=tree.ROOT,
        input=json.dumps(names),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    imported = set(json.loads(done.stdout))
    assert set(names) <= imported
    assert not imported & {"actors", "transports"}


@pytest.mark.parametrize("folder", ["actors", "transports"])
def test_links_are_relative_and_committed(folder: str) -> None:
    link = tree.ROOT / "kactl" / folder

    staged = subprocess.run(
        ["git", "ls-files", "--stage", f"kactl/{folder}"], cwd=tree.ROOT, capture_output=True, check=True, text=True
    ).stdout

    assert link.is_symlink()
    assert os.readlink(link) == f"../{folder}"
    assert staged.startswith("120000 ")  # git's mode of a link


@pytest.mark.slow
def test_two_builds_are_equal(tmp_path: Path) -> None:
    """S-89: at another time, in another folder and time zone, and with another order of sets."""
    epoch = "1700000000"
    one = build_wheel(tmp_path / "one", SOURCE_DATE_EPOCH=epoch, PYTHONHASHSEED="1", TZ="UTC")
    other = build_wheel(tmp_path / "another", SOURCE_DATE_EPOCH=epoch, PYTHONHASHSEED="2", TZ="Asia/Tokyo")

    assert one.read_bytes() == other.read_bytes()
    assert {entry.date_time[:3] for entry in zipfile.ZipFile(one).infolist()} == {(2023, 11, 14)}


@pytest.mark.slow
def test_two_source_distributions_are_equal(tmp_path: Path) -> None:
    """S-89: at another time, with other modes of files, and with another order of sets."""
    epoch = "1700000000"
    one = build_sdist(tmp_path / "one", SOURCE_DATE_EPOCH=epoch, PYTHONHASHSEED="1", TZ="UTC")
    (tmp_path / "another").mkdir(mode=0o700)
    umask = os.umask(0o077)
    try:
        other = build_sdist(tmp_path / "another", SOURCE_DATE_EPOCH=epoch, PYTHONHASHSEED="2", TZ="Asia/Tokyo")
    finally:
        os.umask(umask)

    assert one.read_bytes() == other.read_bytes()
    with tarfile.open(one) as archive:
        assert {(member.mtime, member.uid, member.uname) for member in archive} == {(int(epoch), 0, "")}


@pytest.mark.slow
def test_wheel_contains_every_module_and_only_kactl(tmp_path: Path) -> None:
    built = build_wheel(tmp_path)

    held = set(zipfile.ZipFile(built).namelist())
    expected = {name.replace(".", "/") for name in tree.modules()}
    assert {re.sub(r"(/__init__)?\.py$", "", name) for name in held if name.endswith(".py")} == expected
    assert {"kactl/py.typed", "kactl/forensics/report/templates/report.html"} <= held
    assert {name.split("/")[0].split("-")[0] for name in held} == {"kactl"}


def pinned() -> dict[str, Version]:
    """constraints.txt: one exact version per name."""
    pins: dict[str, Version] = {}
    for line in (tree.ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, version = line.split("==")  # anything but an exact pin fails here
            pins[canonicalize_name(name)] = Version(version)
    return pins


def locked(name: str) -> dict[str, tuple[Version, int]]:
    """Returns the versions of a list with hashes, and the number of hashes of each."""
    pins: dict[str, tuple[Version, int]] = {}
    text = (tree.ROOT / ".ci" / "locked" / f"{name}.txt").read_text(encoding="utf-8").replace("\\\n", " ")
    for line in text.splitlines():
        pin = re.split(r"[ ;]", line, maxsplit=1)[0]
        package, version = pin.split("==")  # anything but an exact pin fails here
        hashes = re.findall(r"--hash=sha256:[0-9a-f]{64}(?= |$)", line)
        assert len(hashes) == line.count("--hash="), f"{pin} has a hash that is no SHA-256"
        pins[canonicalize_name(package)] = Version(version), len(hashes)
    return pins


def declared() -> list[Requirement]:
    """Returns the requirements of pyproject over all extras; kactl's own extras are resolved."""
    project = tree.pyproject()["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    return [wanted for line in lines if (wanted := Requirement(line)).name != "kactl"]


def applies(wanted: Requirement, extras: set[str]) -> bool:
    """Returns whether a requirement applies here, with these extras (or with none)."""
    return wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in extras | {""})


def test_every_pinned_version_has_hashes() -> None:
    pins = pinned()
    everything, server, tools = locked("all"), locked("server"), locked("tools")

    # Lists also contain packages for other systems.
    listed = {name: version for name, (version, _) in (everything | tools).items()}
    assert pins.items() <= listed.items(), "run `.ci/lock --keep-versions`"
    assert {name: version for name, (version, _) in server.items()}.items() <= listed.items()
    assert all(count for pins in (everything, server, tools, locked("supply")) for _, count in pins.values())


def test_environments_are_installed_by_hash_only() -> None:
    installs = [
        line for line in (tree.ROOT / "Makefile").read_text(encoding="utf-8").splitlines() if "pip install" in line
    ]

    assert len(installs) == 2
    assert all("--no-deps" in line for line in installs)
    assert [line.endswith("-e .") or "--require-hashes" in line for line in installs] == [True, True]


def test_pins_satisfy_pyproject() -> None:
    pins = pinned()

    for wanted in declared():
        assert wanted.specifier.contains(pins[canonicalize_name(wanted.name)], prereleases=True), str(wanted)


@pytest.mark.parametrize("name", ["aiohttp", "msgspec", "pyarrow"])
def test_dependencies_that_read_foreign_bytes_end_at_the_next_major_version(name: str) -> None:
    """S-88: no user installs a release of theirs with another interface before the tests have run with it."""
    pin = pinned()[name]
    following = Version(f"{pin.major + 1}.0")

    bounds = [wanted.specifier for wanted in declared() if wanted.name == name]

    assert bounds
    for bound in bounds:
        assert bound.contains(pin)
        assert not bound.contains(following)


def required(name: str) -> list[Requirement]:
    """Returns the requirements of an installed package."""
    try:
        return [Requirement(text) for text in metadata.requires(name) or ()]
    except metadata.PackageNotFoundError:
        reason = f"{name} is not installed in this environment: make lint installs it"
        if os.environ.get(REQUIRE) == "1":
            pytest.fail(reason)
        pytest.skip(reason)


def test_every_dependency_of_a_dependency_is_pinned() -> None:
    pins = pinned()
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [wanted for wanted in declared() if applies(wanted, set())]

    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        assert name in pins, f"{wanted.name} is not in constraints.txt: run `make lock`"
        if (name, frozenset(wanted.extras)) not in seen:
            seen.add((name, frozenset(wanted.extras)))
            waiting += [requirement for requirement in required(wanted.name) if applies(requirement, wanted.extras)]

    assert len(seen) > len(declared()) / 2


def test_every_extra_is_used() -> None:
    extras = tree.pyproject()["project"]["optional-dependencies"]

    assert set(extras) == {
        "server",
        "otlp",
        "etcd",
        "zookeeper",
        "bench",
        "pipeline",
        "java",
        "all",
        "test",
        "docs",
        "lint",
    }


# Folder of the package -> the extras that its modules may import.
EXTRAS_OF = {
    "kactl.admin": {"server"},
    "kactl.cli": {"server", "pipeline"},
    "kactl.forensics": {"pipeline", "java"},
    "kactl.stores.etcd": {"etcd"},
    "kactl.stores.zookeeper": {"zookeeper"},
    "kactl.testing.contracts": {"test"},
    "kactl.testing.pytest_plugin": {"test"},
}


@cache
def packages_distributions() -> Mapping[str, list[str]]:
    """Returns the distributions of each importable package; cached, since it takes a second."""
    return metadata.packages_distributions()


def imported(file: Path) -> set[str]:
    """Returns the packages that a module imports at run time, anywhere in it; not those for type checking only."""
    return set(_imported(ast.parse(file.read_text(encoding="utf-8"))))


def _imported(node: ast.AST) -> Iterator[str]:
    for statement in tree.statements(node):
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            continue
        if isinstance(statement, ast.Import):
            yield from (each.name for each in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            if not statement.level and statement.module:
                yield statement.module
        else:
            yield from _imported(statement)


def distributions(name: str) -> set[str]:
    """Returns the distributions that can provide an imported module."""
    if name.startswith("opentelemetry."):  # one namespace, filled by several distributions
        part = name.split(".")[1]
        return {
            "sdk": {"opentelemetry-sdk"},
            "exporter": {"opentelemetry-exporter-prometheus"},
        }.get(part, {"opentelemetry-api"})
    return {canonicalize_name(each) for each in packages_distributions().get(name.split(".")[0], ())}


def test_every_runtime_import_is_a_declared_dependency() -> None:
    project = tree.pyproject()["project"]
    core = {canonicalize_name(Requirement(line).name) for line in project["dependencies"]}
    extras = {
        extra: {canonicalize_name(Requirement(line).name) for line in lines}
        for extra, lines in project["optional-dependencies"].items()
    }
    wrong = []

    for module, file in tree.modules().items():
        granted = [of for folder, of in EXTRAS_OF.items() if f"{module}.".startswith(f"{folder}.")]
        allowed = core.union(*(extras[extra] for of in granted for extra in of))
        for name in imported(file):
            top = name.split(".")[0]
            if top not in sys.stdlib_module_names and top != "kactl" and not distributions(name) & allowed:
                wrong.append(f"{module} imports {name}")

    assert not wrong


def test_missing_packages_are_attributed_to_the_extra_that_declares_them() -> None:
    extras = tree.pyproject()["project"]["optional-dependencies"]

    for name, extra in EXTRA_OF.items():
        found = {canonicalize_name(each) for each in packages_distributions()[name]}
        declared = {canonicalize_name(Requirement(line).name) for line in extras[extra]}
        needed = {canonicalize_name(Requirement(r).name) for each in declared for r in metadata.requires(each) or ()}
        assert found & (declared | needed), f"{name} does not come with {extra}"


def test_package_claims_asyncio_only() -> None:
    frameworks = [each for each in tree.pyproject()["project"]["classifiers"] if each.startswith("Framework")]

    assert frameworks == ["Framework :: AsyncIO"]
