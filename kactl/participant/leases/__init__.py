"""Leases of leaderships: the local time until which a leader may act."""
