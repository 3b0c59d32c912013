"""Losses: an algebra, a dozen potentials, and a catalogue with one class for every published loss."""
