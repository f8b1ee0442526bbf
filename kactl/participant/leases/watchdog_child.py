"""Program of the watchdog process: kills its parent once the time in a shared mapping has passed.

    python watchdog_child.py MAPPING PIDFD PID TIME_NAMESPACE

The first two arguments are inherited file descriptors, PID is for messages. The mapping has these numbers of 8 bytes:

    UNTIL    the time of CLOCK_BOOTTIME after which the parent has to be killed, or 0
    STEP     the longest time between two looks at it, in nanoseconds
    STATE    0 until this program watches, then WATCHING; OTHER_TIME or minus an error number if it cannot
    LOOKS    how often it has looked

The program ends with its parent, and not by the signals that stop the parent in an orderly way. It imports nothing but
the standard library, so that it starts at once.
"""

import contextlib
import mmap
import os
import select
import signal
import sys
import time

UNTIL, STEP, STATE, LOOKS = range(4)
MAPPING_BYTES = 32
WATCHING = 1
OTHER_TIME = 2
_NS_PER_MS = 1_000_000
# A killed process ends at once, unless it waits for a device or is frozen. In neither case does its code run.
_END_MS = 1_000


def time_namespace() -> str:
    """Returns the namespace of this process's clocks; empty on a kernel that has none."""
    try:
        return os.readlink("/proc/self/ns/time")
    except OSError:
        return ""


def main() -> None:
    mapping, parent, pid, namespace = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    # A service manager sends these to all processes of a service, and the parent needs a while to end.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    shared = memoryview(mmap.mmap(mapping, MAPPING_BYTES)).cast("q")
    poll = select.poll()
    poll.register(parent, select.POLLIN)
    try:
        signal.pidfd_send_signal(parent, 0)
    except OSError as error:
        shared[STATE] = -(error.errno or 1)
        return
    if time_namespace() != namespace:
        shared[STATE] = OTHER_TIME
        return
    shared[STATE] = WATCHING
    while True:
        shared[LOOKS] += 1
        until_ns, step_ns = shared[UNTIL], shared[STEP]
        left_ns = until_ns - time.clock_gettime_ns(time.CLOCK_BOOTTIME) if until_ns else step_ns
        if until_ns and left_ns <= 0:
            _kill(parent, poll, pid)
            return
        # Rounded up: a timeout of 0 would not wait at all. A lease without a margin has steps of 0.
        if poll.poll(min(left_ns, step_ns) // _NS_PER_MS + 1):
            return  # the parent has ended


def _kill(parent: int, poll: select.poll, pid: int) -> None:
    """Kill the parent. Report each reason why it still runs once, and try again until it has ended."""
    reported = set()
    while True:
        problem = f"it has not ended {_END_MS} ms after SIGKILL: it waits for a device, or the kernel drops the signal"
        try:
            signal.pidfd_send_signal(parent, signal.SIGKILL)
        except OSError as error:
            problem = f"SIGKILL is refused: {error.strerror}"
        if poll.poll(_END_MS):
            return
        if problem not in reported:
            reported.add(problem)
            text = f"kactl watchdog: process {pid} must not run after its lease, and {problem}; stop it from outside\n"
            with contextlib.suppress(OSError):  # without a stderr
                os.write(2, text.encode())


if __name__ == "__main__":
    main()
