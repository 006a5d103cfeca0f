"""``python -m soak.cli``."""

from soak.cli import main

main()
