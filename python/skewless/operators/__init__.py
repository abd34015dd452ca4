"""What a user calls on a DataFrame or an RDD."""
