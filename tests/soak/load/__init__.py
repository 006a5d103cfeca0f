"""The load engine, proved against hostile peers."""
