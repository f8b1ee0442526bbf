"""Where snapshots come from: what Kafka's tools print, what kactl prints, Parquet, and the tables of an ingest.

A file is known by what is in it, never by its name. What it cannot say (racks, min.insync.replicas) may be said beside.
"""
