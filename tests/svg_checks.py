"""Checks that hold for every SVG drawing, and helpers to read one."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

SVG = "{http://www.w3.org/2000/svg}"


def parse(drawing: str) -> ET.Element:
    """The root element, once what holds for every drawing has been seen to hold."""
    root = ET.fromstring(drawing)
    assert root.tag == SVG + "svg"
    assert root.get("role") == "img"
    assert root.get("aria-label") == root.findtext(SVG + "title") != ""
    assert "prefers-color-scheme: dark" in root.findtext(SVG + "style")
    assert "<script" not in drawing
    assert re.findall(r"https?://[^\"' ]*", drawing) == ["http://www.w3.org/2000/svg"]
    assert min(map(int, re.findall(r"font-size:(\d+)px", drawing))) >= 11
    body = drawing.split("</style>")[1]
    assert not [
        found for found in re.findall(r"\d+\.\d+", re.sub(r">[^<]*<", "><", body)) if len(found.split(".")[1]) > 1
    ]
    return root


def texts(root: ET.Element, css: str = "") -> list[ET.Element]:
    return [text for text in root.iter(SVG + "text") if css in text.get("class", "").split() or not css]


def shown(text: ET.Element) -> str:
    """What stands on the page: the tooltip and the grey note left out."""
    title = text.find(SVG + "title")
    return (text.text or "") if title is None else title.tail or ""


def names(root: ET.Element, css: str = "") -> list[str]:
    return [shown(text) for text in texts(root, css)]


def box(root: ET.Element) -> tuple[float, float]:
    left, top, width, height = map(float, root.get("viewBox").split())
    assert (left, top) == (0, 0)
    return width, height


def places(root: ET.Element) -> list[tuple[float, float]]:
    """Every point that a path, a circle or a text stands at, with the panels' shifts added."""
    found = []

    def walk(element: ET.Element, dx: float, dy: float) -> None:
        if moved := re.match(r"translate\((\S+) (\S+)\)", element.get("transform", "")):
            dx, dy = dx + float(moved[1]), dy + float(moved[2])
        if element.tag == SVG + "path":
            found.extend(
                (dx + float(x), dy + float(y)) for x, y in re.findall(r"[ML](\S+?) ([-\d.]+)", element.get("d"))
            )
        for across, down in (("cx", "cy"), ("x", "y")):
            if across in element.attrib:
                found.append((dx + float(element.get(across)), dy + float(element.get(down))))
        for child in element:
            walk(child, dx, dy)

    walk(root, 0.0, 0.0)
    return found


def assert_inside(root: ET.Element) -> None:
    width, height = box(root)
    points = places(root)
    assert points
    assert all(0 <= x <= width and 0 <= y <= height for x, y in points)
