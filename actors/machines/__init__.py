"""Machine actors: commit what the machines plan, apply it, queue the requests that follow."""
