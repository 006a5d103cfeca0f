"""soak: holds a request rate against a reverse proxy, breaks things on schedule, heals them, and judges."""

__all__ = ["__version__"]

__version__ = "0.1.0"
