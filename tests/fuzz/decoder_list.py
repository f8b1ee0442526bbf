"""Functions of kactl that interpret bytes or text from outside, found by the calls they make."""

import ast
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

import kactl

from .target import Target, outcome

ROOT: Final = Path(kactl.__file__).parent
# Methods and functions of modules that turn bytes or text into values. `decode` counts if it has an argument that is no
# constant: the decoders of msgspec, and no encodings of text.
_CALLS: Final = {
    "unpack", "unpack_from", "iter_unpack", "from_bytes", "fromhex", "b64decode", "urlsafe_b64decode", "unhexlify",
    "loads", "frombuffer", "decompress", "decompressobj", "FromString", "receive_data",
}  # fmt: skip
# Modules of kactl whose `decode` is called elsewhere, and is in the list itself.
_OWN: Final = {"wire", "registration"}
# Simulated servers, clocks and checkers read what they have written.
_LEFT_OUT: Final = "testing"

# A function: its file, from the package, and its qualified name.
Place = tuple[str, str]


def decoding_functions() -> set[Place]:
    """Returns the functions of kactl that call a decoder."""
    return {
        (path.relative_to(ROOT).as_posix(), name)
        for path in sources()
        for name in _decoding(ast.parse(path.read_text(encoding="utf-8")), ())
    }


def sources() -> Iterator[Path]:
    """Yields the modules of kactl, without those that only simulate."""
    for folder, _, names in os.walk(ROOT, followlinks=True):
        if Path(folder).relative_to(ROOT).parts[:1] != (_LEFT_OUT,):
            yield from (Path(folder) / name for name in names if name.endswith(".py"))


def _decoding(node: ast.AST, scope: tuple[str, ...]) -> Iterator[str]:
    """Yields the qualified names of functions in which a decoder is called."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _decoding(child, (*scope, child.name, "<locals>"))
        elif isinstance(child, ast.ClassDef):
            yield from _decoding(child, (*scope, child.name))
        else:
            if scope[-1:] == ("<locals>",) and isinstance(child, ast.Call) and _is_decoder(child):
                yield ".".join(scope[:-1])
            yield from _decoding(child, scope)


def _is_decoder(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return False
    owner = call.func.value
    if isinstance(owner, ast.Name) and owner.id in _OWN:
        return False
    if call.func.attr == "decode":
        return bool(call.args) and not isinstance(call.args[0], ast.Constant)
    return call.func.attr in _CALLS or (
        call.func.attr == "load" and isinstance(owner, ast.Name) and owner.id == "tomllib"
    )


def reached_functions(targets: Sequence[Target]) -> set[Place]:
    """Returns the functions of kactl that the seeds of some targets enter."""
    prefix, reached = f"{ROOT}/", set[Place]()

    def note(frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(prefix):
            reached.add((code.co_filename[len(prefix) :], code.co_qualname))

    for target in targets:
        for seed in target.seeds:
            sys.setprofile(note)  # for each seed: nesting that is too deep for the interpreter ends it
            try:
                outcome(target, seed)
            finally:
                sys.setprofile(None)
    return reached
