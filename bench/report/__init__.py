"""Generator of docs/performance.md and its pictures from stored figures."""
