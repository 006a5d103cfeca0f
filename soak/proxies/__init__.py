"""What soak knows of each proxy: one adapter a file on the contract in ``base.py``. Adapters run no processes themselves."""
