"""The evidence pages, one module a page; `bench/evidence.py` makes them."""
