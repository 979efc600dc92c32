"""Build the site from docs/: `make docs`.

    python docs/site/build.py [FOLDER]      FOLDER: where the site goes, site/ by default

Wants zensical, as `pip install -e '.[docs]'` brings it. Ends with an error if a link leads nowhere.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from pages import DOCS, from_notebook, navigation
from reference import pages as reference

ROOT = DOCS.parent
TITLE = re.compile(r"\[[\w./-]+\.md\]\(([\w./-]+\.md)(#[\w-]+)?\)")
FEATURES = ["content.code.copy", "navigation.instant", "navigation.sections", "navigation.top", "navigation.tracking",
            "navigation.footer", "search.highlight", "toc.follow"]


def assemble(source: Path) -> None:
    """Write the pages as Markdown, and the configuration beside them."""
    made = {"index.md": index(), **reference()}
    sections = navigation()
    for name in (page for _, names in sections for page in names):
        target = source / "docs" / name.replace(".ipynb", ".md")
        target.parent.mkdir(parents=True, exist_ok=True)
        if name in made:
            text = made[name]
        elif name.endswith(".ipynb"):
            text, pictures = from_notebook(DOCS / name)
            for picture, data in pictures.items():
                (target.parent / picture).write_bytes(data)
        else:
            text = (DOCS / name).read_text(encoding="utf-8")
        target.write_text(with_titles(text, target.parent, source / "docs").replace(".ipynb)", ".md)"), encoding="utf-8")
    shutil.copytree(DOCS / "images", source / "docs" / "images")
    nav = [{title: [name.replace(".ipynb", ".md") for name in names]} for title, names in sections]
    (source / "docs" / "site.css").write_text(Path(__file__).with_name("site.css").read_text(encoding="utf-8"), encoding="utf-8")
    (source / "mkdocs.yml").write_text(json.dumps({
        "site_name": "Curator", "site_description": "Curate text, images, video and audio into training data.", "nav": nav,
        "use_directory_urls": False, "extra_css": ["site.css"],
        "theme": {"name": "material", "features": FEATURES, "font": False, "palette": [
            {"media": f"(prefers-color-scheme: {scheme})", "scheme": name, "toggle": {"icon": "lucide/sun-moon", "name": "light or dark"}}
            for scheme, name in (("light", "default"), ("dark", "slate"))]},
        "markdown_extensions": ["tables", "fenced_code", "sane_lists", {"toc": {"permalink": True}}, "pymdownx.highlight",
                                "pymdownx.superfences"],
    }, indent=1), encoding="utf-8")  # JSON is YAML too


def with_titles(text: str, folder: Path, source: Path) -> str:
    """The text of a page in this folder. A link that has a file's name for its words has the page's title there."""
    def titled(link: re.Match[str]) -> str:
        page = DOCS / os.path.relpath((folder / link[1]).resolve(), source.resolve())
        if not page.is_file():
            return link[0]
        title = page.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        return f"[{title}]({link[1]}{link[2] or ''})"

    return TITLE.sub(titled, text)


def index() -> str:
    """The first page: the README, with links as they are from here."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    text = text.replace(".ipynb)", ".md)")
    return re.sub(r"\[([^\]]*)\]\((?:CONTRIBUTING|CHANGELOG|LICENSE)[^)]*\)", r"\1", text)


def build(to: Path) -> None:
    source = to.parent / f"{to.name}.pages"
    shutil.rmtree(source, ignore_errors=True)
    assemble(source)
    subprocess.run([sys.executable, "-m", "zensical", "build", "--strict", "--clean"], cwd=source, check=True)
    shutil.rmtree(to, ignore_errors=True)
    shutil.move(source / "site", to)
    shutil.rmtree(source)
    print(f"the site lies in {to}: open {to / 'index.html'}")


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "site").resolve())
