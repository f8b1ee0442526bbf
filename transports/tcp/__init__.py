"""Network of participants and controllers over TCP."""
