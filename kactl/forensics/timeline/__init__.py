"""Timeline of one partition: the lines of all logs about it and the results of the jobs, in order of time.

`lookup.py` resolves names; `entries.py` collects the entries; `describe.py` describes each line.
"""
