"""What Skewless keeps in a checkpoint, read without Spark."""
