"""One fault a file. ``noop.py`` is the template; ``registry()`` in ``chaos.faults.catalog`` finds them all."""
