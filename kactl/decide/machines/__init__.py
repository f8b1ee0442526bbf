"""State machines and elections as pure functions: rows in, a change out. One module for each machine."""
