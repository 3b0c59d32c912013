"""Audits: which labels look wrong, how many there are, which ones would be right, and the files that show it."""
