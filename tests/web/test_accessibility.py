"""Everybody can use the pages: what is written can be read, and no mouse is needed."""

import re
from importlib.resources import files

import pytest

ENOUGH = 4.5
"""The contrast that small text needs, says WCAG 2."""
SURFACES = ("paper", "panel", "raised", "hover", "main-paper", "bad-paper", "good-paper", "warn-paper")
TEXTS = ("ink", "soft", "faint", "main", "main-strong", "success", "fail", "timeout", "error", "running")
PAIRS = [(text, surface) for text in TEXTS for surface in SURFACES]
PAIRS += [("warn-ink", "warn-paper"), ("on", "main"), ("on", "main-strong"), ("white", "danger")]


def tokens():
    """The colors of the stylesheet by name: in the light, in the dark."""
    css = files("proctor.web").joinpath("static/proctor.css").read_text()
    found = re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);", css)
    return {name: (light, dark) for name, light, dark in found} | {"white": ("#ffffff", "#ffffff")}


def brightness(color):
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    darker, lighter = sorted((brightness(one), brightness(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_every_text_can_be_told_from_what_it_stands_on(theme):
    colors = tokens()

    poor = {pair: contrast(colors[pair[0]][theme], colors[pair[1]][theme]) for pair in PAIRS}

    assert {pair: ratio for pair, ratio in poor.items() if ratio < ENOUGH} == {}


def test_no_table_of_a_report_has_an_empty_header_cell():
    templates = list(files("proctor.report").joinpath("templates").iterdir())

    empty = [one.name for one in templates if re.search(r"<th\b[^>]*>\s*</th>", one.read_text())]

    assert empty == []
    assert len(templates) > 5
