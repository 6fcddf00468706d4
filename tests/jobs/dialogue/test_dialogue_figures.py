"""The figures and the methods paragraph of dialogues."""

import html
import re

from proctor.jobs.dialogue.report import dialogue_files, dialogue_html, dialogue_text, methods_paragraph


def document(settings=({},)):
    """An analysis of two clients and three therapists, for each of these settings."""
    cells = [
        {
            "client": client,
            "therapist": therapist,
            "settings": setting,
            "mean": {"value": 3.5, "low": 3.0, "high": 4.0, "n": 6, "method": "Student's t", "note": ""},
            "std": 1.0,
        }
        for client in ("patientPsi", "annaAgent with a long history of insomnia")
        for therapist in ("basic", "CBT", "MI therapist (openai/gpt-4o)")
        for setting in settings
    ]
    overall = {"value": 3.5, "low": 3.2, "high": 3.8, "n": 6 * len(cells), "note": ""}
    component = {
        "source": "client",
        "levels": 2,
        "variance": 1.0,
        "low": 0.5,
        "high": 2.0,
        "share": 0.4,
        "note": "",
    }
    measure = {"measure": "alliance", "overall": overall, "missing": 0, "note": "", "cells": cells}
    return {
        "name": "Study",
        "sessions": 6 * len(cells),
        "left_out": 1,
        "stand_ins": [],
        "rule": "Only finished dialogues count.",
        "measures": [{**measure, "components": [component], "effects": [], "by": "therapist"}],
    }


def test_client_by_therapist_is_a_heat_map_with_intervals_n_and_method():
    page = dialogue_html(document())

    assert "<figcaption>Alliance by client and therapist</figcaption>" in page
    assert (
        "Mean of the finished dialogues of a combination; 95% CI: Student's t; n = 6 dialogues per "
        "combination, 36 in all."
    ) in html.unescape(page)
    assert page.count('class="c-heat-') == 6
    assert page.count(">3 to 4</text>") == page.count(">n = 6</text>") == 6
    assert "openai/gpt-4o" in re.sub(r"<[^>]+>", "", page)


def test_other_settings_have_a_map_each():
    captions = re.findall(
        r"Alliance by client and therapist: (\w+ = \w+)<",
        dialogue_html(document([{"cot": "on"}, {"cot": "off"}])),
    )

    assert list(dict.fromkeys(captions)) == ["cot = on", "cot = off"]


def test_the_methods_are_in_the_reports_and_not_at_the_terminal():
    methods = methods_paragraph(document())

    assert methods.startswith(
        "We simulated dialogues of 2 clients with 3 therapists (n = 6 dialogues per combination, 36 in all; "
    )
    assert methods in html.unescape(dialogue_html(document()))
    files = dialogue_files(document())
    assert "## Methods" in files["analysis-report.md"] and "## Methods" not in dialogue_text(document())
    assert "figures/01-alliance-by-client-and-therapist.svg" in files
