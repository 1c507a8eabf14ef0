"""The explorer: a local page to see the kinds, name them, search, and take the result away (`maskcon explore`)."""
