"""Tests of single faults, a file each; those of the first ones are in ``tests/chaos/test_faults.py``."""
