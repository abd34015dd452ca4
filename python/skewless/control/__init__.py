"""What remembers: the loop over all queries, the watch over one, and the controller that decides when a plan
is worth a swap. Knows no Spark: what it asks of the JVM is a protocol (`watch.QueryGateway`)."""
