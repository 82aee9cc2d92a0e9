"""Code that tests and tools share: test cases, checks of plans and runs, damaged files, and commands as processes."""
