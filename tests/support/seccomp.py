"""System calls that the kernel refuses to this process and its children, as the seccomp profile of a container does."""

import ctypes
import struct
from typing import Final

MEMFD_CREATE: Final = 319  # of x86-64
PIDFD_SEND_SIGNAL: Final = 424
PIDFD_OPEN: Final = 434

_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, _PR_SET_NO_NEW_PRIVS = 22, 2, 38
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_RET_ERRNO, _RET_ALLOW = 0x00050000, 0x7FFF0000


def refuse(number: int, errno: int) -> None:
    """Have a system call fail from now on. It cannot be undone."""

    def step(code: int, yes: int, no: int, value: int) -> bytes:
        return struct.pack("HBBI", code, yes, no, value)

    program = b"".join(
        [
            step(_LOAD, 0, 0, 0),  # the number of the call
            step(_JUMP_IF_EQUAL, 0, 1, number),
            step(_RETURN, 0, 0, _RET_ERRNO | errno),
            step(_RETURN, 0, 0, _RET_ALLOW),
        ]
    )
    kept = ctypes.create_string_buffer(program)
    filter_ = ctypes.create_string_buffer(struct.pack("HP", len(program) // 8, ctypes.addressof(kept)))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, filter_)):
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "seccomp is not available")
