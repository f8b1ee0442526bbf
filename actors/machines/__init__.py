"""Machine actors: commit the planned changes, apply them, queue the requests that follow."""
