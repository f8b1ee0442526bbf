"""Checkers of the invariants, and counters of rare moments, over the history of a run.

`events` lists what they read. No checker calls the code that it judges.
"""
