"""Kernels compute the value of a loss together with its gradient. They import only the formulas."""
