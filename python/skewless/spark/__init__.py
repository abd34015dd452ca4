"""The Spark side: with `operators` the only room that imports pyspark and py4j."""
