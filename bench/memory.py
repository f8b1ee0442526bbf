"""How much memory this process has."""

import resource
from pathlib import Path


def resident_bytes() -> int:
    """Resident bytes now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def peak_bytes() -> int:
    """The most that was ever resident."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
