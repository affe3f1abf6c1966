"""The generator is a program, not a test: pytest leaves it alone."""

collect_ignore_glob = ["*.py"]
