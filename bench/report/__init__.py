"""docs/performance.md and its pictures, made from stored figures."""
