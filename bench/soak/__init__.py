"""A long run of queries under random tables, kills and restarts, compared with plain Spark: `make soak`."""
