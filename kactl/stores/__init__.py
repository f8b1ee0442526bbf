"""Where clusters are kept. Each store keeps the promises of `kactl.stores.base`; import the one you need by its module."""
