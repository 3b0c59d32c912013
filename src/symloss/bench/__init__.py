"""Benchmarks of losses, linear heads, the training loop and the closed form. `symloss bench` runs them."""
