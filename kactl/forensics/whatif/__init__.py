"""Snapshots of clusters for `kactl.whatif`: from files, from the tables of an ingest, and in Spark."""
