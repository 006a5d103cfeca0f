"""Every proxy that is installed through the same two minutes, one after the other, and what each lost: 'make matrix'."""
