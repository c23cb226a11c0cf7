"""Smaller models: what they lose, what training gives back, and what is left, measured."""
