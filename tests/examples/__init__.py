"""Programs that the documentation shows, whole, and that are run as they stand."""
