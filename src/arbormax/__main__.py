"""`python -m arbormax`: the command line."""

from arbormax.cli import main

if __name__ == "__main__":
    main()
