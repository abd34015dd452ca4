"""Skewless keeps keyed work in Spark level while hot keys drift."""
