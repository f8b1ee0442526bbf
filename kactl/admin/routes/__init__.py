"""Routes of the admin API, by subject."""
