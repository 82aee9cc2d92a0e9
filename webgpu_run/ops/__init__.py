"""The ops: one module an op or a family, each with its plan, its reference and its test cases."""
