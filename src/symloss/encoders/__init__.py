"""Encoders turn texts and images into features."""
