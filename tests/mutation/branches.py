"""Branch coverage of functions: which outcomes of their conditional jumps have been seen.

A loop has two outcomes, too: another round, and the end. What the interpreter adds is left out: whether an exception
has the type of an `except`, whether a context manager suppresses one, and the loops of comprehensions. So is the
failure of an `assert`, which states what cannot happen.
"""

import dis
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

_ADDED: Final = frozenset({"CHECK_EXC_MATCH", "CHECK_EG_MATCH", "WITH_EXCEPT_START"})
# Of waiting for an asynchronous context manager, and of making its answer a truth value.
_AWAITING: Final = frozenset(
    {
        "GET_AWAITABLE",
        "LOAD_CONST",
        "SEND",
        "YIELD_VALUE",
        "RESUME",
        "JUMP_BACKWARD_NO_INTERRUPT",
        "CLEANUP_THROW",
        "END_SEND",
        "TO_BOOL",
    }
)
# The next instruction after the condition of an `assert` that fails.
_FAILURES: Final = frozenset({("LOAD_ASSERTION_ERROR", None), ("LOAD_COMMON_CONSTANT", AssertionError)})
_COMPREHENSIONS: Final = frozenset({"<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"})


class Outcome(NamedTuple):
    """One of the two outcomes of a conditional jump.

    Attributes:
        line: of the jump.
        jumps: whether the jump is made.
    """

    function: str
    line: int
    offset: int
    jumps: bool


class Jump(NamedTuple):
    """A conditional jump: its line, and the offset that it jumps to.

    Attributes:
        possible: the outcomes that count.
    """

    line: int
    target: int
    is_loop: bool
    possible: frozenset[bool]

    def leads_to(self, offset: int) -> bool:
        """Whether it was made, if the instruction at an offset follows. The end of a loop may jump past its target."""
        return offset >= self.target if self.is_loop else offset == self.target


def jumps(code: CodeType) -> dict[int, Jump]:
    """Returns the conditional jumps of a function, by their offsets."""
    found, line, before = {}, code.co_firstlineno, ""
    instructions = [each for each in dis.get_instructions(code) if each.opname not in ("EXTENDED_ARG", "CACHE", "NOP")]
    failures = {each.offset for each in instructions if (each.opname, each.argval) in _FAILURES}
    for instruction, following in itertools.pairwise([*instructions, instructions[-1]]):
        if instruction.positions is not None and instruction.positions.lineno is not None:
            line = instruction.positions.lineno
        name = instruction.opname
        if before in _ADDED and name in _AWAITING:
            continue
        is_loop = name == "FOR_ITER" and code.co_name not in _COMPREHENSIONS
        if (is_loop or "JUMP_IF" in name or "JUMP_FORWARD_IF" in name or "JUMP_BACKWARD_IF" in name) and (
            before not in _ADDED
        ):
            target = _behind_prefix(code, int(instruction.argval))
            possible = {made for made, offset in ((False, following.offset), (True, target)) if offset not in failures}
            found[instruction.offset] = Jump(line, target, is_loop, frozenset(possible))
        before = name
    return found


def outcomes(code: CodeType) -> set[Outcome]:
    """Returns the outcomes of all conditional jumps of a module's functions."""
    found = set()
    for inner in functions(code):
        for offset, jump in jumps(inner).items():
            found |= {Outcome(inner.co_qualname, jump.line, offset, made) for made in jump.possible}
    return found


def functions(code: CodeType) -> Iterator[CodeType]:
    """Yields the code of all functions of a module; the bodies of classes and the module itself run at its import."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & 0x2:  # it has local variables of its own
                yield constant
            yield from functions(constant)


class Branches:
    """Collects the outcomes that are seen in a `with` block, in all threads.

    Args:
        path: of the module.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        self._known: dict[CodeType, dict[int, Jump] | None] = {}
        self._last: dict[FrameType, int] = {}
        self.seen: set[Outcome] = set()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Trace the module's functions."""
        before = sys.gettrace()
        # Python 3.12 has events of opcodes only if a frame wants them when tracing begins.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(self._of_call)
        threading.settrace(self._of_call)
        try:
            yield
        finally:
            sys.settrace(before)
            threading.settrace(before)

    def _of_call(self, frame: FrameType, event: str, arg: object) -> Callable[..., Any] | None:
        code = frame.f_code
        if code not in self._known:
            is_here = Path(code.co_filename).resolve() == self._path
            self._known[code] = jumps(code) if is_here else None
        if self._known[code] is None:
            return None
        frame.f_trace_opcodes = True
        return self._of_opcode

    def _of_opcode(self, frame: FrameType, event: str, arg: object) -> Callable[..., Any]:
        # Python 3.13 does not instrument a function during the event of its first call.
        frame.f_trace_opcodes = True
        if event == "opcode":
            known = self._known[frame.f_code]
            assert known is not None
            now, last = _behind_prefix(frame.f_code, frame.f_lasti), self._last.pop(frame, None)
            if last is not None:
                jump = known[last]
                self.seen.add(Outcome(frame.f_code.co_qualname, jump.line, last, jump.leads_to(now)))
            if now in known:
                self._last[frame] = now
        elif event in ("exception", "return"):
            self._last.pop(frame, None)  # the condition itself has failed
        return self._of_opcode


def _behind_prefix(code: CodeType, offset: int) -> int:
    """Returns the offset of the instruction that an EXTENDED_ARG at an offset belongs to."""
    while dis.opname[code.co_code[offset]] == "EXTENDED_ARG":
        offset += 2
    return offset
