"""Results of the checks of `kactl doctor`."""

from typing import Final

import msgspec

PASS: Final = "pass"
MISSING: Final = "missing"
WARNING: Final = "WARN"
FAILED: Final = "FAIL"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one check.

    Attributes:
        result: pass; missing: not installed, and required by some commands only; WARN; FAIL.
        detail: the commands that require it, or the remedy.
    """

    check: str
    result: str
    value: str
    detail: str = ""
