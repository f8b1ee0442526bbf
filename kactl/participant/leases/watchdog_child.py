"""Program of the watchdog process: kills its parent once the time in a shared mapping has passed.

    python watchdog_child.py MAPPING PIDFD

Both arguments are inherited file descriptors. The mapping has two numbers of 8 bytes: the time of CLOCK_BOOTTIME after
which the parent has to be killed, or 0, and the longest time between two looks at it, in nanoseconds. The program ends
with its parent. It imports nothing but the standard library, so that it starts at once.
"""

import mmap
import select
import signal
import sys
import time

MAPPING_BYTES = 16
_NS_PER_MS = 1_000_000


def main() -> None:
    mapping, parent = int(sys.argv[1]), int(sys.argv[2])
    shared = memoryview(mmap.mmap(mapping, MAPPING_BYTES)).cast("q")
    poll = select.poll()
    poll.register(parent, select.POLLIN)
    while True:
        until_ns, step_ns = shared[0], shared[1]
        left_ns = until_ns - time.clock_gettime_ns(time.CLOCK_BOOTTIME) if until_ns else step_ns
        if left_ns <= 0:
            signal.pidfd_send_signal(parent, signal.SIGKILL)
            return
        # Rounded up: a timeout of 0 would not wait at all.
        if poll.poll(min(left_ns, step_ns) // _NS_PER_MS + 1):
            return  # the parent has ended


if __name__ == "__main__":
    main()
