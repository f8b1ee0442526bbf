"""Timeline of one partition: the lines of all logs about it and the conclusions of the jobs, in order of time.

`known.py` resolves names; `entries.py` collects the entries; `describe.py` renders each line as a phrase.
"""
