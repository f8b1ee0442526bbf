"""Spectators: routing tables for programs that host no partitions."""
