"""What everything else speaks of: tables, snapshots, plans, limits. Values over numpy; no Spark, no
memory."""
