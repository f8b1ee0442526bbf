"""Credentials of the admin API: tokens, the socket of this machine, and where clients find them."""
