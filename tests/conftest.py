"""Check array shapes during the tests; find real models and texts, and report it when they are missing."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

ROOT = Path(__file__).resolve().parent.parent
KERNELS = b"".join(path.read_bytes() for path in sorted((ROOT / "src/detoklens/kernels").glob("*.py")))
# numba looks for changes in a loop's own file only: loops that call loops of another file would be tested as they were
os.environ.setdefault(
    "NUMBA_CACHE_DIR", str(ROOT / ".pytest_cache" / f"numba-{hashlib.sha256(KERNELS).hexdigest()[:12]}")
)
os.environ["DETOKLENS_CACHE"] = ""  # no test finds what an earlier one, or the user, has kept

SHAPE_CHECKED = ("scores", "weights.first_layer", "weights.scale")
install_import_hook([f"detoklens.{name}" for name in SHAPE_CHECKED], "beartype.beartype")

# A run says something of the code and nothing of luck: the same cases each time. `make explore` draws new and more ones.
settings.register_profile(
    "exploring", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
settings.register_profile("detoklens", settings.get_profile("exploring"), derandomize=True, max_examples=50)
settings.load_profile("detoklens")

os.fsync = lambda descriptor: None  # no test pulls the plug, and a disk at work takes its time

SHARED = ROOT.parent / "shared"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")
# No host but this one is found, and whatever goes elsewhere all the same goes to a port where nobody listens.
ONLY_THIS_HOST = (
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--proxy-server=http://127.0.0.1:9",
    "--proxy-bypass-list=<-loopback>;127.0.0.1",
)

# Left out of `make quick`: whole reports, browsers, notebooks, training, models of transformers, new processes, kills,
# full disks and other users. `pytest -p tests.cpu_times` names tests that belong here.
SLOW = (
    "tests/cli/test_app.py::test_too_little_memory",
    "tests/cli/test_bad_paths.py",
    "tests/cli/test_completion.py::test_shells_ask",
    "tests/cli/test_contributions.py",
    "tests/cli/test_count.py::test_progress_is_drawn",
    "tests/cli/test_count.py::test_two_runs_in_two_workers",
    "tests/cli/test_full_disk.py",
    "tests/cli/test_layers_killed.py",
    "tests/corpus",
    "tests/engines",
    "tests/explorer",
    "tests/figures",
    "tests/fuzz",
    "tests/kernels/test_compiling.py",
    "tests/kernels/test_contributions.py::test_code_just_compiled",
    "tests/kernels/test_product.py::test_a_processor_without_fused",
    "tests/measures/test_attention.py",
    "tests/measures/test_auroc",
    "tests/measures/test_contributions.py",
    "tests/measures/test_trained_models.py",
    "tests/measures/test_twin_conditions.py",
    "tests/model",
    "tests/questions/test_attention.py",
    "tests/questions/test_auroc",
    "tests/questions/test_blocks_of_gguf.py",
    "tests/questions/test_contributions.py",
    "tests/questions/test_families.py",
    "tests/questions/test_layers.py",
    "tests/questions/test_lookback.py::test_a_real_",
    "tests/questions/test_lookback.py::test_the_demo_has",
    "tests/questions/test_lookback.py::test_the_documented_example",
    "tests/questions/test_lookback.py::test_the_seed_and_workers",
    "tests/questions/test_lookback.py::test_the_switch_grows",
    "tests/questions/test_new_question.py::test_it_is_a_section",
    "tests/questions/test_paper.py::test_the_demo_is_judged",
    "tests/questions/test_reproducing.py",
    "tests/questions/test_summaries.py",
    "tests/questions/test_trained_models.py",
    "tests/questions/test_twins.py",
    "tests/report",
    "tests/scores/test_six_terms.py::test_a_text_of_a_wrong_type",
    "tests/scores/test_untrained.py::test_they_are_left_out",
    "tests/scores/test_untrained.py::test_twins_are_ranked",
    "tests/scores/test_untrained.py::test_words_are_ranked",
    "tests/site",
    "tests/test_address_space.py",
    "tests/test_another_user.py",
    "tests/test_benchmarks.py",
    "tests/test_calibration.py::test_what_is_planted",
    "tests/test_documented_commands.py",
    "tests/test_light_imports.py::test_every_public_name",
    "tests/test_light_imports.py::test_loading_and_asking",
    "tests/test_notebooks.py",
    "tests/test_parallel.py",
    "tests/test_python_page.py",
    "tests/test_scratch.py::test_what_a_",
    "tests/test_tutorial.py",
    "tests/test_wheel.py",
    "tests/test_without_guard.py",
    "tests/training",
    "tests/verification",
    "tests/weights/families",
    "tests/weights/hub",
    "tests/weights/test_gguf.py",
    "tests/weights/test_memory.py",
    "tests/weights/test_reading.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make quick` does not even import what it leaves out: torch and transformers take seconds."""
    left_out = config.option.markexpr == "not slow" and collection_path.relative_to(ROOT).as_posix().startswith(SLOW)
    return True if left_out else None


def _shared(*parts: str) -> Path:
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"NOT TESTED ON REAL DATA: {'/'.join(parts)} is missing beside the repository (../shared)")
    return path


@pytest.fixture
def only_svg(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without two of the three formats of their figures: drawing is most of their work."""
    monkeypatch.setattr("detoklens.report.drawing.FORMATS", ("svg",))


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports whose figures are files and no drawings, for tests that look at neither."""
    from tests.answers import draw_nothing

    monkeypatch.setattr("detoklens.report.drawing.draw_files", draw_nothing)


@pytest.fixture(scope="module")
def few_words() -> Iterator[None]:
    """A twentieth of the shipped word list, for tests that look at no word's rank."""
    from tests.spelled import shipping_few_words

    with shipping_few_words():
        yield


@pytest.fixture(scope="session")
def answers_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this run keeps answers, the same folder for all workers of pytest."""
    from tests.once import shared_folder

    folder = shared_folder(tmp_path_factory) / "answers"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def shared_answers(answers_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers and figures of reports are made once per run: for tests that check what is shown, not how it is made."""
    from tests.answers import SharingDrawings, sharing_answers

    monkeypatch.setattr("detoklens.questions.study.Study._computed", sharing_answers(answers_folder))
    monkeypatch.setattr("detoklens.report.drawing.draw_files", SharingDrawings(answers_folder))


@pytest.fixture(scope="session")
def whisper_folder() -> Path:
    """The first layer of whisper-tiny.en's decoder, real trained weights."""
    return _shared("models", "whisper-tiny.en")


@pytest.fixture(scope="session")
def stories_folder() -> Path:
    """stories15M, a whole small Llama, real trained weights."""
    return _shared("models", "stories15M")


@pytest.fixture(scope="session")
def gpt2_positions_folder() -> Path:
    """The real GPT-2 small's positions and first attention layer, without its token embeddings."""
    return _shared("models", "gpt2-small-layer0")


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    """The first attention layer of all-MiniLM-L6-v2, real trained weights of a BERT."""
    return _shared("models", "all-MiniLM-L6-v2")


@pytest.fixture(scope="session")
def corpus_folder() -> Path:
    """Sixteen shards of English text."""
    return _shared("corpus")


@pytest.fixture(scope="session")
def tiny_text() -> Path:
    """200 kB of English text."""
    return _shared("corpus", "tiny.txt")


@pytest.fixture(scope="session")
def browser():
    """A real browser that reaches 127.0.0.1 and nothing else; loudly missed where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="NOT TESTED IN A BROWSER: playwright is missing")
    path = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("NOT TESTED IN A BROWSER: no Chromium was found; install Debian's package chromium")
    with playwright.sync_playwright() as driver:
        switches = ["--no-sandbox", "--disable-gpu", *ONLY_THIS_HOST]
        running = driver.chromium.launch(executable_path=path, args=switches)
        yield running
        running.close()
