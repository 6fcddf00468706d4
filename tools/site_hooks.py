"""What MkDocs does besides, when it builds the site: pages from the code, and the project's own files.

Pages in `docs/` link to files beside it (`../SECURITY.md`, `../examples/plans`), as they must on a code host.
In the site, these are pages of the section "Project".
"""

import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import reference  # noqa: E402  it is found beside this file

PROJECT_FILES = ("CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md")
EXAMPLES = "project/examples.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages and the project's files."""
    added = reference.pages()
    for name in PROJECT_FILES:
        added[f"project/{name}"] = (ROOT / name).read_text(encoding="utf-8")
    added[EXAMPLES] = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    for path, content in added.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Point links at the pages that the files have in the site; let MkDocs see all blocks of code."""
    # A word behind the language is for the tests; MkDocs would not take it for a block of code.
    markdown = re.sub(r"^```(\w+) \w+$", r"```\1", markdown, flags=re.MULTILINE)
    folder = Path(page.file.src_uri).parent
    up = "../" * len(folder.parts)
    if page.file.src_uri == EXAMPLES:
        # Links to folders of examples: their names are enough.
        return re.sub(r"\[([^\]]*)\]\((?!http)[^)]*\)", r"\1", markdown)
    if folder.name == "project":
        return markdown.replace("](docs/", f"]({up}").replace("](README.md", f"]({up}README.md")
    markdown = re.sub(rf"\]\({re.escape(up)}\.\./(\w+\.md)", rf"]({up}project/\1", markdown)
    return re.sub(rf"\]\({re.escape(up)}\.\./examples[^)]*\)", f"]({up}{EXAMPLES})", markdown)
