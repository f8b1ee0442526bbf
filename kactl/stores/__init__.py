"""Stores: persistent cluster state. Each implements `kactl.stores.base.Store`; import it by its own module."""
