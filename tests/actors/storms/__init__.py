"""Whole histories of clusters, drawn at random, and what has to hold of them."""
