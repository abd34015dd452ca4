"""How many executors a query should have: pure functions, as all policies are.

Separate from the policies that make tables, because these answer another question. Nothing calls them on
Spark yet: who asks Spark for executors is not built.
"""
