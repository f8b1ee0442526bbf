"""The contract suite of stores over each store; the suites are in `kactl.testing.contracts`."""
