"""Simulated servers of stores."""
