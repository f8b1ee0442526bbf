"""The lines that are known: one module for each family of them, one `Format` for each line."""
