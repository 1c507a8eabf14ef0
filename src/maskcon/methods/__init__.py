"""The paper: relations, losses, memory bank, methods."""
