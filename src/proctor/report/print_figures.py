"""Figures at print size, as SVG and PDF files with their caption.

A unit of a plot is a quarter of a millimeter: 480 units are 120 mm, 720 are 180 mm, the text width of most
journals, and labels have 8.5 points. The PDF is written here, from the few elements that plots consist of,
in Helvetica: it needs no browser and no library, but has only the letters of Western European scripts.
"""

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from itertools import pairwise
from xml.etree import ElementTree

from proctor.report.charts import COLOURS, STYLE
from proctor.report.text_layout import text_width, wrapped

MM_PER_UNIT = 0.25
POINTS_PER_UNIT = MM_PER_UNIT * 72 / 25.4
CAPTION_SIZE, CAPTION_LINE = 11.0, 14.5
MARGIN = 8.0
"""Around a figure, in units."""
_SVG = "{http://www.w3.org/2000/svg}"
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_ARC = 0.5523
"""Length of the handles of a curve that is a quarter of a circle."""
_LETTERS = str.maketrans({"−": "–", "≥": ">=", "≤": "<=", "→": "->", "\u202f": " ", "\u2009": " "})


def print_svg(plot: str, caption: str) -> str:
    """A plot as an SVG file in the size it has in print, with its caption below it."""
    head, _, marks = plot.partition(">")
    width, height = _size(head)
    lines = wrapped(caption, width, CAPTION_SIZE)
    whole = height + 10 + CAPTION_LINE * len(lines)
    texts = "".join(
        f'<text x="0" y="{height + 16 + CAPTION_LINE * number:.1f}" class="c-caption">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    box = f"{-MARGIN:g} {-MARGIN:g} {width + 2 * MARGIN:g} {whole + 2 * MARGIN:g}"
    head = re.sub(r'viewBox="[^"]*"', f'viewBox="{box}"', head)
    across, down = ((side + 2 * MARGIN) * MM_PER_UNIT for side in (width, whole))
    marks = marks.removesuffix("</svg>")
    return (
        f'{head} width="{across:.2f}mm" height="{down:.2f}mm"><title>{escape(caption)}</title>'
        f"<style>{_light()}{_on_paper()}</style>{marks}{texts}</svg>\n"
    )


def print_pdf(plot: str, caption: str) -> bytes:
    """A plot as a PDF file of one page in the size it has in print, with its caption below it."""
    tree = ElementTree.fromstring(print_svg(plot, caption))
    left, top, width, height = (float(part) for part in tree.attrib["viewBox"].split())
    page = _Page(left, top, height)
    for element in _elements(tree):
        page.draw(element)
    return _document(page, width * POINTS_PER_UNIT, height * POINTS_PER_UNIT, caption)


def _size(head: str) -> tuple[float, float]:
    _, _, width, height = re.search(r'viewBox="([^"]*)"', head)[1].split()  # type: ignore[index]
    return float(width), float(height)


@cache
def _light() -> str:
    """The colours of light mode only: paper is white."""
    return COLOURS.partition("@media")[0].replace("color-scheme: light dark;", "")


@cache
def _on_paper() -> str:
    """The style sheet of plots without what fits them to a page."""
    style = re.sub(r"\.chart(?:\.c-wide)? \{[^}]*\}", "", STYLE.partition("@media")[0])
    return (
        f"{style}.chart {{ font-family: Helvetica, Arial, sans-serif; background: #fff; }} "
        f".chart .c-caption {{ font-size: {CAPTION_SIZE:g}px; }}"
    )


def _elements(tree: ElementTree.Element) -> Iterator[ElementTree.Element]:
    for element in tree.iter():
        if element.tag.removeprefix(_SVG) in ("rect", "line", "circle", "polyline", "polygon", "text"):
            yield element


@dataclass(frozen=True, slots=True, kw_only=True)
class _Paint:
    """How an element is drawn."""

    fill: str
    stroke: str
    width: float
    dashes: Sequence[float]
    opacity: float
    size: float
    is_bold: bool


@cache
def _rules() -> list[tuple[str, dict[str, str]]]:
    """The style sheet of plots: each selector with its properties, colours resolved."""
    colours = dict(re.findall(r"(--[\w-]+):\s*([^;]+);", _light()))
    rules = list[tuple[str, dict[str, str]]]()
    for selectors, body in _RULE.findall(_on_paper()):
        properties = {
            name.strip(): re.sub(r"var\((--[\w-]+)\)", lambda match: colours[match[1]], value.strip())
            for name, _, value in (part.partition(":") for part in body.split(";"))
            if value
        }
        rules += [
            (selector.strip().removeprefix(".chart").strip(), properties) for selector in selectors.split(",")
        ]
    return rules


@cache
def _paint(tag: str, classes: str) -> _Paint:
    names = {f".{name}" for name in classes.split()}
    style: dict[str, str] = {}
    # A class decides over the name of the element.
    for selector, properties in sorted(_rules(), key=lambda rule: rule[0].startswith(".")):
        if selector == tag or selector in names:
            style |= properties
    dashes = [float(part) for part in style.get("stroke-dasharray", "").split()]
    return _Paint(
        fill=style.get("fill", "" if tag in ("line", "polyline") else "#000000").replace("none", ""),
        stroke=style.get("stroke", "").replace("none", ""),
        width=float(style.get("stroke-width", 1)),
        dashes=dashes,
        opacity=float(style.get("opacity", 1)),
        size=float(style.get("font-size", "12px").removesuffix("px")),
        is_bold=style.get("font-weight", "") == "600",
    )


class _Page:
    """The content of a page, in points from the lower left corner."""

    def __init__(self, left: float, top: float, height: float) -> None:
        self._left, self._bottom = left, top + height
        self.commands: list[str] = []
        self.opacities: list[float] = []

    def draw(self, element: ElementTree.Element) -> None:
        """Draw an element of a plot."""
        tag, values = element.tag.removeprefix(_SVG), element.attrib
        paint = _paint(tag, values.get("class", ""))
        if paint.opacity not in self.opacities:
            self.opacities.append(paint.opacity)
        self.commands.append(f"q /G{self.opacities.index(paint.opacity)} gs")
        if tag == "text":
            self._text(element, paint)
        else:
            self._shape(tag, values, paint)
        self.commands.append("Q")

    def _text(self, element: ElementTree.Element, paint: _Paint) -> None:
        text = (element.text or "").translate(_LETTERS)
        width = text_width(element.text or "", paint.size) * (1.04 if paint.is_bold else 1.0)
        shift = {"middle": width / 2, "end": width}.get(element.attrib.get("text-anchor", ""), 0.0)
        x, y = self._at(float(element.attrib["x"]) - shift, float(element.attrib["y"]))
        encoded = text.encode("cp1252", "replace").hex()
        font = "F2" if paint.is_bold else "F1"
        size = paint.size * POINTS_PER_UNIT
        self.commands.append(f"{_rgb(paint.fill)} rg BT /{font} {size:.3f} Tf {x} {y} Td <{encoded}> Tj ET")

    def _shape(self, tag: str, values: Mapping[str, str], paint: _Paint) -> None:
        path = self._path(tag, {name: value for name, value in values.items() if name != "class"})
        dashes = " ".join(f"{dash * POINTS_PER_UNIT:.2f}" for dash in paint.dashes)
        if paint.fill:
            self.commands.append(f"{_rgb(paint.fill)} rg")
        if paint.stroke:
            width = paint.width * POINTS_PER_UNIT
            self.commands.append(f"{_rgb(paint.stroke)} RG {width:.3f} w [{dashes}] 0 d")
        operator = {(True, True): "B", (True, False): "f", (False, True): "S", (False, False): "n"}
        self.commands.append(f"{path} {operator[bool(paint.fill), bool(paint.stroke)]}")

    def _path(self, tag: str, values: Mapping[str, str]) -> str:
        def number(name: str) -> float:
            return float(values[name])

        if tag == "rect":
            x, y = self._at(number("x"), number("y") + number("height"))
            width, height = (number(side) * POINTS_PER_UNIT for side in ("width", "height"))
            return f"{x} {y} {width:.3f} {height:.3f} re"
        if tag == "circle":
            return self._circle(number("cx"), number("cy"), number("r"))
        if tag == "line":
            points = [(number("x1"), number("y1")), (number("x2"), number("y2"))]
        else:
            pairs = (pair.split(",") for pair in values["points"].split())
            points = [(float(x), float(y)) for x, y in pairs]
        places = [" ".join(self._at(x, y)) for x, y in points]
        drawn = " ".join([f"{places[0]} m", *(f"{place} l" for place in places[1:])])
        return f"{drawn} h" if tag == "polygon" else drawn

    def _circle(self, x: float, y: float, r: float) -> str:
        quarters = [(1, 0), (0, 1), (-1, 0), (0, -1), (1, 0)]
        parts = [" ".join(self._at(x + r, y)) + " m"]
        for (ax, ay), (bx, by) in pairwise(quarters):
            handles = [
                (x + r * (ax + _ARC * bx), y + r * (ay + _ARC * by)),
                (x + r * (bx + _ARC * ax), y + r * (by + _ARC * ay)),
                (x + r * bx, y + r * by),
            ]
            parts.append(" ".join(" ".join(self._at(*handle)) for handle in handles) + " c")
        return " ".join([*parts, "h"])

    def _at(self, x: float, y: float) -> tuple[str, str]:
        return f"{(x - self._left) * POINTS_PER_UNIT:.2f}", f"{(self._bottom - y) * POINTS_PER_UNIT:.2f}"


def _rgb(colour: str) -> str:
    """The three parts of a colour such as `#3566b8`, from 0 to 1."""
    return " ".join(f"{int(colour[start : start + 2], 16) / 255:.3f}" for start in (1, 3, 5))


def _document(page: _Page, width: float, height: float, title: str) -> bytes:
    """A PDF file with one page."""
    content = zlib.compress("\n".join(page.commands).encode("ascii"))
    states = " ".join(
        f"/G{number} << /ca {opacity:g} /CA {opacity:g} >>" for number, opacity in enumerate(page.opacities)
    )
    font = "<< /Type /Font /Subtype /Type1 /BaseFont /{} /Encoding /WinAnsiEncoding >>"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {width:.2f} {height:.2f}] /Contents 4 0 R /Resources "
        f"<< /Font << /F1 5 0 R /F2 6 0 R >> /ExtGState << {states} >> >> >>".encode(),
        f"<< /Length {len(content)} /Filter /FlateDecode >>\nstream\n".encode() + content + b"\nendstream",
        font.format("Helvetica").encode(),
        font.format("Helvetica-Bold").encode(),
        f"<< /Title <feff{title.encode('utf-16-be').hex()}> /Creator (Proctor) >>".encode(),
    ]
    parts, offsets, length = [b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n"], list[int](), 15
    for number, body in enumerate(objects, start=1):
        offsets.append(length)
        parts.append(f"{number} 0 obj\n".encode() + body + b"\nendobj\n")
        length += len(parts[-1])
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    parts.append(
        f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n<< /Size {len(objects) + 1} "
        f"/Root 1 0 R /Info 7 0 R >>\nstartxref\n{length}\n%%EOF\n".encode()
    )
    return b"".join(parts)
