"""Key updates of TLS 1.3 (RFC 8446, 4.6.3), which Python's module cannot send."""

import _ssl
import ctypes
import functools
import ssl
import subprocess
from typing import Any

# In CPython's object of a connection: the head of each object, a pointer to a socket, and this one to OpenSSL's own.
_POINTER_AT = object.__basicsize__ + ctypes.sizeof(ctypes.c_void_p)
# The other side should update its key, too.
_REQUESTED = 1


def update_key(connection: ssl.SSLObject) -> None:
    """Write a message that updates the key, and asks the peer to do the same."""
    pointer = ctypes.c_void_p.from_address(id(connection._sslobj) + _POINTER_AT)  # type: ignore[attr-defined]
    library = _library()
    assert library.SSL_key_update(pointer, _REQUESTED) == 1
    assert library.SSL_do_handshake(pointer) == 1


@functools.cache
def _library() -> Any:
    """Returns the OpenSSL that Python uses."""
    listed = subprocess.run(["ldd", _ssl.__file__], check=True, capture_output=True, text=True, timeout=60).stdout
    path = next(line.split()[2] for line in listed.splitlines() if "libssl" in line)
    library = ctypes.CDLL(path)
    library.SSL_key_update.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.SSL_do_handshake.argtypes = [ctypes.c_void_p]
    return library
