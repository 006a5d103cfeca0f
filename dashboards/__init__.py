"""The Grafana dashboard of a soak run as code, beside what is shipped for Prometheus.

Imports nothing of soak: the metrics' names are the contract, and the tests hold them to ``soak.metric_catalog``.
"""
