"""`python -m evoforge`."""

from evoforge.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    raise SystemExit(main())
