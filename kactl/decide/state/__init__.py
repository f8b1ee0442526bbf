"""Cluster state as columns: the partition table, its rows and changes, and stored records."""
