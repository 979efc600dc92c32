"""The pages: links lead somewhere, and each page has its place in the navigation. The site itself: `make docs`."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
LINK = re.compile(r"\]\(([^()\s]+(?:\([^()\s]*\))?)\)")


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / "site" / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


pages = module("pages")


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"(?ms)^ *```.*?^ *```", "", text))


def anchors(path: Path) -> set[str]:
    """The names of the headings of a page, as renderers make them."""
    heads = re.findall(r"(?m)^#+ +(.+)$", re.sub(r"(?ms)^ *```.*?^ *```", "", path.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", head.strip().lower()).replace(" ", "-") for head in heads}


def test_no_link_of_a_page_leads_nowhere():
    found = {ROOT / "README.md": (ROOT / "README.md").read_text(encoding="utf-8"), ROOT / "CONTRIBUTING.md":
             (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")}
    for name in pages.all_pages():
        path = DOCS / name
        found[path] = pages.from_notebook(path)[0] if path.suffix == ".ipynb" else path.read_text(encoding="utf-8")
    broken = []
    for path, text in found.items():
        for link in LINK.findall(without_code(text)):
            target, _, anchor = link.partition("#")
            if "://" in link or link.startswith("mailto:") or (path.suffix == ".ipynb" and link.endswith(".png")):
                continue
            to = path if not target else (path.parent / target).resolve()
            if not to.exists():
                broken.append(f"{path.relative_to(ROOT)}: {link}: there is no such file")
            elif anchor and to.suffix == ".md" and anchor not in anchors(to):
                broken.append(f"{path.relative_to(ROOT)}: {link}: the page has {', '.join(sorted(anchors(to)))}")
    assert not broken, "\n".join(broken)


def test_every_page_is_in_the_navigation_once():
    named = [page for _, names in pages.navigation() for page in names]
    assert len(named) == len(set(named))
    lie_there = {page for page in named if not page.startswith(pages.MADE)}
    assert lie_there == pages.all_pages(), "each page of docs/ stands in docs/site/nav.yaml"


def test_a_notebook_becomes_a_page_with_its_pictures():
    text, pictures = pages.from_notebook(DOCS / "tutorials" / "2-images.ipynb")
    assert "20 written, 3 dropped, 1 duplicate, 1 failed" in text
    assert "\x1b" not in text
    assert all(data.startswith(b"\x89PNG") and f"]({name})" in text for name, data in pictures.items())
    assert pictures


@pytest.mark.slow
def test_the_reference_has_every_stage_with_its_parameters_and_columns():
    from curator.registry import packs

    sys.path.insert(0, str(DOCS / "site"))
    try:
        made = module("reference").pages()
    finally:
        sys.path.remove(str(DOCS / "site"))
    text = "\n".join(made.values())
    assert all(f"\n### {name}\n" in text for name in packs.all_stages())
    assert "| `keep` | `list[str] or None` |" in made["reference/text.md"]
    assert "--metrics-port" in made["reference/commands.md"]
    assert "### Pipeline.run" in made["reference/python.md"]


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    pytest.importorskip("zensical")
    subprocess.run([sys.executable, str(DOCS / "site" / "build.py"), str(tmp_path / "site")], check=True)
    named = [page for _, names in pages.navigation() for page in names]
    for page in named:
        html = (tmp_path / "site" / page).with_suffix(".html").read_text(encoding="utf-8")
        assert "<h1" in html, page
