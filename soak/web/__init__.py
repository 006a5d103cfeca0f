"""The doors of a live run: the control socket and the read-only pages."""
