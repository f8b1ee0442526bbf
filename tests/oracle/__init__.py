"""The controller's decisions once more, in plain objects: what columns are compared with, and measured against.

Dictionaries, lists and loops, one partition at a time, written from what the classic controller does and from nothing
that stands in the package but its words (names of states, of refusals, of elections). Whoever doubts the columns reads
this; where both say the same on any cluster, both can be believed.
"""
