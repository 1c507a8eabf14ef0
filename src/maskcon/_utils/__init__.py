"""Small parts that need neither torch nor the rest of the package."""
