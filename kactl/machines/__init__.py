"""The lives that a controller leads, as pure machines: rows in, a change out. One file for each life."""
