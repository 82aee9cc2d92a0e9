"""Passes: each changes one kind of subgraph of a graph under rewriting, and can run alone."""
