"""Make the pictures of the web app that the README shows, from runs that need no key and no network.

    python tools/screenshots.py [FOLDER]

In a folder of its own it runs the demonstration, a comparison of models, a benchmark, an experiment,
dialogues and an evaluation, all with stand-ins, leaves one run under way, and has Chromium look at the pages.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from PIL import Image
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
WIDTH, HEIGHT = 1280, 800
QUESTIONS = ["capital of France", "largest planet", "year the war ended", "author of Faust", "root of 144"]
COMPARISON = {
    "runId": "which-model",
    "concurrency": 8,
    "budget": 2.0,
    "defaults": {"model": ["scripted/quick", "scripted/careful"], "runs": 20, "expect": {"contains": "sure"}},
    "matrix": [{"prompt": [f"What is the {question}?" for question in QUESTIONS]}],
    "prices": {
        "scripted/quick": {"input": 0.15, "output": 0.6},
        "scripted/careful": {"input": 3.0, "output": 15.0},
    },
}
FORMS = ["Explain the {}.", "What is the {}?", "Say what you know of the {}.", "Name the {} in one word."]
FORMS += ["Who told you the {}?", "Is it easy to find the {}?", "Prove the {}.", "Guess the {}."]
UNDER_WAY = {
    "runId": "nightly",
    "concurrency": 6,
    "budget": 5.0,
    "defaults": {"model": ["scripted/quick", "scripted/careful"], "expect": {"contains": "sure"}, "runs": 8},
    "matrix": [{"prompt": [form.format(question) for question in QUESTIONS for form in FORMS]}],
    "prices": COMPARISON["prices"],
}
MODELS = {
    "quick": {"rules": [{"reply": ["I am sure.", "I am sure.", "Perhaps."]}], "latency_seconds": 0.15},
    "careful": {"rules": [{"reply": "I looked it up, and I am sure."}], "latency_seconds": 0.3},
}
MISTAKEN = """# Two models, five runs each
concurrency: 4
defaults:
  scriptCommand: python3 -m unittest -q
  timeoutSec: 15 minutes
matrix:
  - repo: ~/work/calendar
    prompt: Get the leap years right
    agent: builtin
    modle: [openai/gpt-5, anthropic/claude-sonnet-4-5]
    runs: 5
"""


def main() -> int:
    """Make all pictures."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="proctor-pictures-") as name:
        folder = Path(name) / "demo"
        make_runs(folder)
        with serving(folder) as url, under_way(folder):
            take_pictures(url, target)
    return 0


def make_runs(folder: Path) -> None:
    """A store with a run of every job."""
    subprocess.run([sys.executable, str(ROOT / "examples/demo/run.py"), str(folder)], check=True)
    for name, model in MODELS.items():
        (folder / f"{name}.yaml").write_text(json.dumps(model))
    (folder / "comparison.yaml").write_text(json.dumps(COMPARISON))
    (folder / "nightly.yaml").write_text(json.dumps(UNDER_WAY))
    shutil.copytree(ROOT / "examples", folder / "examples", dirs_exist_ok=True)
    proctor(folder, "batch", "comparison.yaml")
    tasks = "examples/benchmark/tasks/smoke"
    proctor(folder, "bench", "--task", tasks, "--models", "scripted/echo", "--oracle", "--runs", "2")
    proctor(folder, "experiment", "examples/experiments/harbour-fee.yaml")
    proctor(folder, "simulate", "--config", "examples/dialogues/rehearsal.yaml", "--output-dir", "outputs")
    proctor(folder, "evaluate", "start", "examples/evaluation/evaluation.yaml")


def proctor(folder: Path, *words: str) -> None:
    """Run a command to its end; that some items fail belongs to the picture."""
    done = subprocess.run(command(*words), cwd=folder, env=environment(folder), check=False)
    assert done.returncode in (0, 1), words


def command(*words: str) -> list[str]:
    """A command of Proctor."""
    return [sys.executable, "-m", "proctor", *words]


def environment(folder: Path) -> dict[str, str]:
    """Where nobody has configured anything."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG")}
    return {**kept, "HOME": str(folder), "PROCTOR_HOME": str(folder / "home")}


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The server over those runs; its address."""
    words = command("serve", "--no-token", "--port", "0", "--json")
    with subprocess.Popen(
        words, cwd=folder, env=environment(folder), stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            yield json.loads(server.stdout.readline())["url"]
        finally:
            server.terminate()


@contextmanager
def under_way(folder: Path) -> Iterator[None]:
    """A run that goes on while the pictures are taken."""
    with subprocess.Popen(
        command("batch", "nightly.yaml"),
        cwd=folder,
        env=environment(folder),
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    ) as run:
        try:
            yield
        finally:
            run.terminate()


def take_pictures(url: str, target: Path) -> None:
    """Look at each page."""
    session, evaluation = first_session(url, "demo"), first_run(url, "evaluation")
    views: list[tuple[str, str, str, Callable[[Page], Any]]] = [
        ("batches", "/", "light", lambda page: page.get_by_text("which-model").wait_for()),
        ("run", "/runs/nightly", "light", lambda page: page.get_by_role("row").nth(5).wait_for()),
        ("run-dark", "/runs/which-model", "dark", lambda page: page.get_by_role("row").nth(5).wait_for()),
        ("session", f"/sessions/{session}", "light", lambda page: page.wait_for_timeout(500)),
        ("new-batch", "/new", "light", write_mistakes),
        ("compare", "/compare?run=which-model&by=model", "light", wait_for("Difference")),
        ("evaluation", f"/evaluations/{evaluation}", "light", wait_for("Evaluators")),
    ]
    with sync_playwright() as playwright:
        program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for name, path, scheme, ready in views:
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme)
            page.goto(url + path)
            ready(page)
            # What is live has moved by now.
            page.wait_for_timeout(1500)
            page.screenshot(path=target / f"{name}.png")
            compress(target / f"{name}.png")
            page.close()
        browser.close()


def write_mistakes(page: Page) -> None:
    """A plan with two mistakes in it."""
    page.get_by_text("6 items").wait_for()
    page.locator("plan-editor textarea").fill(MISTAKEN)
    page.get_by_role("list", name="Problems").wait_for()


def wait_for(words: str) -> Callable[[Page], Any]:
    """Until these words are on the page."""
    return lambda page: page.get_by_text(words).first.wait_for()


def first_run(url: str, job: str) -> str:
    """The newest run of a job."""
    with urlopen(f"{url}/api/runs?job={job}&limit=1") as answer:
        return str(json.load(answer)["runs"][0]["runId"])


def first_session(url: str, run_id: str) -> str:
    """A session of a run that failed: there is most to see."""
    with urlopen(f"{url}/api/runs/{run_id}/items?limit=1&status=fail") as answer:
        return str(json.load(answer)["items"][0]["sessionId"])


def compress(file: Path) -> None:
    """Pages have few colors: a palette makes a picture a third of its size."""
    with Image.open(file) as picture:
        picture.convert("RGB").quantize(colors=128, dither=Image.Dither.NONE).save(file, optimize=True)
    print(f"{file.name}: {file.stat().st_size // 1024} KB")


if __name__ == "__main__":
    sys.exit(main())
