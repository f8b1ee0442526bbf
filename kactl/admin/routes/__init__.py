"""The routes of the admin API, by subject."""
