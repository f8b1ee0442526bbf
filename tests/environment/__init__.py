"""Real servers and participants where programs run: in containers, as unnamed users, on full disks, by odd names."""
