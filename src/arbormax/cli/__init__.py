"""The command line. Each command parses its arguments, calls one library function and prints the result."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the program `arbormax`."""
    try:
        from arbormax.cli.app import app
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        if package == "arbormax":
            raise
        print(f"arbormax: the command line needs the package {package}: pip install 'arbormax[train]'", file=sys.stderr)
        sys.exit(2)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # characters that the terminal cannot show are escaped
            stream.reconfigure(errors="backslashreplace")
    app()
