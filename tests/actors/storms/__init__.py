"""Random histories of clusters and the invariants that hold in them."""
