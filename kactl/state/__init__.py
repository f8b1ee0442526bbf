"""State of the cluster, as columns: what the controller knows."""
