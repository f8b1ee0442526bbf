"""Stores: where clusters are kept. Each one implements `kactl.stores.base`; import it by its own module."""
