"""Behaviour on a terminal: colours, and a request for confirmation before a change."""

import os
import pty
import subprocess

from .server import KACTL, Up


def run_on_terminal(up: Up, answer: str, *arguments: str) -> tuple[int, str]:
    """Run a command on a pseudo-terminal and type an answer. Returns its exit code and output."""
    controlling, terminal = pty.openpty()
    with subprocess.Popen(
        [*KACTL, "--server", up.url, *arguments], stdin=terminal, stdout=terminal, stderr=terminal
    ) as child:
        os.close(terminal)
        os.write(controlling, answer.encode())
        output = b""
        while True:
            try:
                read = os.read(controlling, 4096)
            except OSError:  # the command has closed the terminal
                break
            if not read:
                break
            output += read
        code = child.wait(30)
    os.close(controlling)
    return code, output.decode()


def test_confirmation_can_be_refused_on_a_terminal(own_up: Up) -> None:
    own_up("topic", "create", "asked", "--assignment", "0:1,2", "--assignment", "1:2,1")
    own_up("broker", "kill", "1")
    own_up.until(lambda: not own_up.partitions("--leader", "1"), "other brokers lead")
    own_up("broker", "restart", "1")
    own_up.until(lambda: not own_up.partitions("--urp"), "all replicas are in sync")

    no, no_output = run_on_terminal(own_up, "n\n", "elect", "preferred", "--all")
    after_no = len(own_up.partitions("--leader", "1"))
    yes, yes_output = run_on_terminal(own_up, "y\n", "elect", "preferred", "--all")
    again, again_output = run_on_terminal(own_up, "", "elect", "preferred", "--all")

    assert (no, after_no) == (6, 0)
    assert "would move" in no_output
    assert "not confirmed: nothing was changed" in no_output
    assert "\x1b[" in no_output
    assert (yes, len(own_up.partitions("--leader", "1"))) == (0, 1)
    assert "1 moved." in yes_output
    assert again == 0
    assert "No partition needs an election." in again_output
    assert "Continue?" not in again_output
