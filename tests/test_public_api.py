"""The public names, with their methods and parameters, as a listing that a change shows up in.

python -m tests.test_public_api     writes the listing again
"""

import dataclasses
import enum
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec
import pytest

import kactl
import kactl.admin
import kactl.fencing
import kactl.kafka

LISTING: Final = Path(__file__).with_name("public_api.txt")
_MARKS: Final[dict[Any, str]] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
MODULES: Final = (kactl, kactl.admin, kactl.fencing, kactl.kafka)


def listing() -> str:
    return "".join(f"{line}\n" for module in MODULES for line in _module(module))


def _module(module: ModuleType) -> Iterator[str]:
    for name in sorted(module.__all__):
        yield from _name(f"{module.__name__}.{name}", getattr(module, name))


def _name(name: str, found: Any) -> Iterator[str]:
    if not inspect.isclass(found):
        yield f"{name}{_parameters(found)}" if inspect.isfunction(found) else name
        return
    if issubclass(found, enum.Enum):
        yield f"{name}: {', '.join(member.name for member in found)}"
        return
    if issubclass(found, msgspec.Struct):
        yield f"{name}({', '.join(found.__struct_fields__)})"
    elif dataclasses.is_dataclass(found):
        yield f"{name}({', '.join(field.name for field in dataclasses.fields(found))})"
    elif issubclass(found, tuple):
        yield f"{name}({', '.join(getattr(found, '_fields', ()))})"
    else:
        yield f"{name}{_parameters(found.__init__) if inspect.isfunction(found.__init__) else ''}"
    for attribute in sorted(dir(found)):
        value = inspect.getattr_static(found, attribute)
        if attribute.startswith("_") or not getattr(value, "__module__", "kactl").startswith("kactl"):
            continue
        if isinstance(value, property):
            yield f"{name}.{attribute}"
        elif inspect.isfunction(value):
            yield f"{name}.{attribute}{_parameters(value)}"


def _parameters(function: Any) -> str:
    shown = []
    keyword_only = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            shown.append("*")
        keyword_only |= parameter.kind is parameter.VAR_POSITIONAL
        mark = _MARKS.get(parameter.kind, "")
        shown.append(f"{mark}{parameter.name}" + ("" if parameter.default is parameter.empty else "=..."))
    return f"({', '.join(shown)})"


def test_public_names_equal_the_listing() -> None:
    assert listing() == LISTING.read_text(encoding="utf-8"), "run python -m tests.test_public_api, and see the changes"


def test_every_public_name_has_a_docstring() -> None:
    for module in MODULES:
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isclass(found) or inspect.isfunction(found):
                assert found.__doc__, f"{module.__name__}.{name}"


@pytest.mark.parametrize("heavy", ["aiohttp", "ssl", "numpy", "asyncio", "msgspec", "opentelemetry", "logging"])
def test_import_of_the_package_imports_little(heavy: str) -> None:
    program = f"import sys; import kactl; import kactl.admin; sys.exit({heavy!r} in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0


if __name__ == "__main__":
    LISTING.write_text(listing(), encoding="utf-8")
    print(f"{LISTING}: {len(LISTING.read_text(encoding='utf-8').splitlines())} names")
