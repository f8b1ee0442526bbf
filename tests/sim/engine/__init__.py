"""Simulator of whole clusters: worlds, modelled brokers, checkers, generated scripts, and tools for what they find."""
