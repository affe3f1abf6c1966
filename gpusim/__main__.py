"""``python -m gpusim``."""

from gpusim.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
