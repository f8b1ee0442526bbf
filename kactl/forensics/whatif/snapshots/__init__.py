"""Sources of snapshots: output of Kafka's tools and of kactl, Parquet, and the tables of an ingest.

The format of a file is detected from its content, not from its name. Facts that a source lacks, such as racks and
min.insync.replicas, may be given separately.
"""
