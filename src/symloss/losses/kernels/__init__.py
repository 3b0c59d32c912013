"""Kernels: the value of a loss and its gradient in one pass over the scores, by torch operations on every device."""
