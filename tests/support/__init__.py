"""Test harnesses that several folders of tests, or a benchmark, share."""
