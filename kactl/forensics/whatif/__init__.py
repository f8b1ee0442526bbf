"""Snapshots of clusters for `kactl.whatif`: from files and from the tables of an ingest."""
