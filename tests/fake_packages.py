"""Packages that look installed."""

from pathlib import Path


def install(site: Path, name: str, files: dict[str, bytes]) -> None:
    """Write these files and the metadata of a package, as pip does."""
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    for path, content in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(content)
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in files))
