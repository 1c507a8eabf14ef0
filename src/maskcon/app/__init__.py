"""The explorer: a local page to see, name, correct and search the finer kinds."""
