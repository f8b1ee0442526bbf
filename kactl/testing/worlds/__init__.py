"""Simulated servers: each is a node of its own, behind links with drawn delays and faults."""
