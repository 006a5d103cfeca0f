"""What a request costs the load engine, what it costs others, and where the engine stops. Run it with ``make bench``."""
