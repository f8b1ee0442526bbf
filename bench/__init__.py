"""Benchmarks; each module prints figures and their spread when it is run."""
