"""Where clusters are kept. Each store keeps the promises of `kactl.store`; import the one you need by its module."""
