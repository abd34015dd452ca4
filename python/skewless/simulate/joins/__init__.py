"""Stream joins without Spark: joiners, where each scheme sends a key, and the loop that watches them."""
