"""Measurements of soak's own cost, beside other load generators."""
