"""One partition, all that is known of it, in order of time: lines of all logs, and what the jobs made of them.

`known.py` finds out what a name means; `entries.py` gathers; `describe.py` says each line in words.
"""
