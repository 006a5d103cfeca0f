"""Faults and their lifecycle: model, targets, journal, arbiter, runner, guardian. Imports nothing from ``soak``."""
