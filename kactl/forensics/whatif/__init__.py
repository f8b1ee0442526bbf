"""Snapshots of clusters for `kactl.decide.whatif`: from files and from the tables of an ingest."""
