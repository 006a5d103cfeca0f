"""The run's certificates: its own authority and their atomic installation. Imports nothing from ``soak`` or ``chaos``."""
