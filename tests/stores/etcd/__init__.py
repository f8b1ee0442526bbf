"""Tests of the etcd store."""
