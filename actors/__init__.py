"""Actors: one task, one inbox, one owner of state each. They carry out the decisions of the machines."""
