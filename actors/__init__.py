"""Actors: one task, one inbox, one owner of state each. They do what the machines decide."""
