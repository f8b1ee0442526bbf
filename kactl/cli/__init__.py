"""The command `kactl`: asks a running server, or is one."""
