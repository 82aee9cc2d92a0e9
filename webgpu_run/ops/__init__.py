"""The ops: one module per op or family of ops. Start with spec.py."""
