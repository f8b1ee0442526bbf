"""Job `unclean`: elections of leaders that were not in sync."""
