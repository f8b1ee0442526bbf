"""The command `kactl`: runs a server, or sends requests to a running one."""
