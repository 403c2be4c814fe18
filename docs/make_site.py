"""Build the site into site/: `make site`.

    docs ──► build/site-source ──► Sphinx (strict) ──► site
    registry of questions ──► gallery, tables ──┘
    demo ──► report, explorer ──► site/live

Neither the build nor the pages need a network.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

import detoklens as dl

DOCS = Path(__file__).parent
ROOT = DOCS.parent
SOURCE = ROOT / "build" / "site-source"

BESIDE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "src/detoklens/demo/MODEL_CARD.md": "model-card.md",
}
"""Pages outside docs/, and their names on the site."""
ACCESSIBLE = {
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    '<div class="highlight"><pre>': '<div class="highlight"><pre tabindex="0">',
    '<div class="table-wrapper ': '<div tabindex="0" class="table-wrapper ',
}
"""What Sphinx and its theme write, and what screen readers and keyboards need."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=ROOT / "site", help="output folder")
    parser.add_argument("--source", type=Path, default=SOURCE, help="folder for the prepared sources")
    options = parser.parse_args()
    lay_out(options.source)
    build(options.source, options.out)
    print(f"The site is in {options.out}. To look at it, with the live explorer:")
    print(
        f"  {Path(sys.executable).name} -m http.server 8000 --directory {options.out}   # then open http://localhost:8000"
    )


def lay_out(source: Path) -> None:
    """Collect everything that Sphinx reads in one folder."""
    from make_gallery import demo_studies, write_gallery
    from make_llms import write_llms
    from make_tables import tables_page, write_questions

    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(DOCS, source, ignore=shutil.ignore_patterns("*.pyc", "__pycache__", "make_*.py", "run_*.py"))
    for path, name in BESIDE.items():
        shutil.copy(ROOT / path, source / name)
    for page in source.rglob("*.md"):
        page.write_text(_relink(page.read_text(encoding="utf-8")), encoding="utf-8")
    (source / "tables.md").write_text(tables_page(), encoding="utf-8")
    studies = demo_studies()
    write_gallery(source, studies)
    put_live(source / "extra" / "live", studies["end"])
    write_questions(source / "made" / "questions.md")
    write_llms(source, source / "extra")


def _relink(text: str) -> str:
    """Point links to repository files, and links into docs/, to their pages on the site."""
    for path, name in BESIDE.items():
        for up in ("../../", "../", ""):
            text = text.replace(f"]({up}{path})", f"](/{name})").replace(f"]({up}{path}#", f"](/{name}#")
    return text.replace("](docs/", "](/")


def put_live(folder: Path, study: dl.Study) -> None:
    """Write the demo model's explorer and report, keeping only the report files that its page links to."""
    from detoklens.explorer.bundle import write_bundle
    from detoklens.report import drawing

    folder.mkdir(parents=True)
    write_bundle(study, folder / "explorer")
    drawing.FORMATS = ("svg",)
    page = study.report(folder / "report")
    led_to = set(re.findall(r'href="((?:figures|tables)/[^"]+)"', page.read_text(encoding="utf-8")))
    for path in [path for name in ("figures", "tables") for path in (page.parent / name).iterdir()]:
        if path.relative_to(page.parent).as_posix() not in led_to:
            path.unlink()


def build(source: Path, out: Path) -> None:
    """Run Sphinx; broken links and missing references are errors."""
    built = source.with_name("site-built") / "html"  # notebooks leave copies next to it
    shutil.rmtree(built, ignore_errors=True)
    words = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", "-j", "2"]
    done = subprocess.run([*words, "-d", str(source.with_name("site-doctrees")), str(source), str(built)])
    if done.returncode:
        raise SystemExit("the site was not built; fix the Sphinx errors above")
    for page in built.glob("**/*.html"):
        if "live" not in page.relative_to(built).parts:
            text = page.read_text(encoding="utf-8")
            for found, better in ACCESSIBLE.items():
                text = text.replace(found, better)
            page.write_text(text, encoding="utf-8")
    (built / ".nojekyll").touch()  # otherwise some hosts skip folders that start with an underscore
    shutil.rmtree(out, ignore_errors=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(built, out)


if __name__ == "__main__":
    main()
