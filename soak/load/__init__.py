"""The load engine: open-model pacing, connections, classification. Runs in a process of its own; knows no lab, no store."""
