"""Shards that worker processes share: each has one owner at a time, a worker that lives."""
