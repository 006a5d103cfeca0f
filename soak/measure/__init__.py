"""Folds of samples: histograms, one-second windows, running totals. Pure: no clocks, no I/O."""
