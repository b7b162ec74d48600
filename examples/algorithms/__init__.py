"""Algorithms as a user would write them, three of each of seven sorts; docs/algorithms.md says what becomes of them."""
