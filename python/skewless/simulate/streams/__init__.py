"""Streams of keys: made by a law, or read from a file."""
