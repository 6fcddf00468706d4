"""The manual as a site: complete, without dead links, and without anything from elsewhere."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from proctor import __all__ as public_names
from proctor.job import plan_schema
from proctor.jobs.coding.job import JOB
from proctor.store.tables import COLUMNS

ROOT = Path(__file__).parents[1]


class _Page(HTMLParser):
    """The links, anchors and resources of a page."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.resources: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag in ("script", "img", "iframe", "source") and "src" in values:
            self.resources.append(values["src"])
        elif tag == "link" and values.get("rel") not in ("canonical", "next", "prev"):
            self.resources.append(values.get("href", ""))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make site` builds it."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, _Page]:
    return {file: _Page(file) for file in site.rglob("*.html") if file.name != "404.html"}


def test_the_site_has_every_page_no_dead_link_and_nothing_from_elsewhere(pages, site):
    built = {str(page.relative_to(site)) for page in pages}
    sources = {
        str(page.relative_to(ROOT / "docs").with_suffix(".html")) for page in ROOT.glob("docs/**/*.md")
    }
    assert {"index.html"} | sources - {"README.html"} <= built
    resources = [resource for page in pages.values() for resource in page.resources]
    assert [resource for resource in resources if urlsplit(resource).netloc] == []
    styles = "".join(file.read_text(encoding="utf-8") for file in site.rglob("*.css"))
    assert not re.search(r"url\(['\"]?(https?:)?//|@import", styles)
    dead = []
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if target.is_dir():
                target /= "index.html"
            known = pages.get(target)
            if not target.is_file() or (
                parts.fragment and known and unquote(parts.fragment) not in known.anchors
            ):
                dead.append(f"{file.name}: {link}")
    assert dead == []


def _content(site: Path, name: str) -> str:
    return (site / name).read_text(encoding="utf-8")


def test_the_reference_has_every_name_of_the_code(site: Path) -> None:
    api, schema = _content(site, "reference/python-api.html"), _content(site, "reference/plan-schema.html")
    tables, http = _content(site, "reference/store-tables.html"), _content(site, "reference/http-api.html")

    assert [name for name in public_names if not name.startswith("_") and name not in api] == []
    assert "<code>repeat</code>" in api and "Part of the id" in api, "fields have their texts"
    assert [key for key in plan_schema(JOB)["properties"] if f"<code>{key}</code>" not in schema] == []
    columns = {column for table in COLUMNS.values() for column in table}
    assert [column for column in columns if f"<code>{column}</code>" not in tables] == []
    assert "GET /api/runs" in http and "POST " in http
