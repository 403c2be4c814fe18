"""Generate the tables of docs/families.md from the Specs and the questions; run by `python docs/make_tables.py`."""

from __future__ import annotations

import re
from pathlib import Path

from detoklens.questions.base import Need
from detoklens.questions.catalogue import QUESTIONS
from detoklens.weights.families import REFUSED, SPEC_OF, SPECS
from detoklens.weights.gguf_file import ARCHITECTURES
from detoklens.weights.gguf_tokenizer import PRE_TOKENIZERS
from detoklens.weights.spec import AlibiPositions, LearnedPositions, RotaryPositions, Spec, Switch

PAGE = Path(__file__).parent / "families.md"
GENERATED = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def families_page() -> str:
    """Return the page with regenerated tables; the prose around them stays as it is."""
    tables = {
        "families": families_table(),
        "questions": questions_table(),
        "gguf": gguf_table(),
        "refused": refused_table(),
        "pre_tokenizers": ", ".join(f"`{name}`" for name in PRE_TOKENIZERS) + "\n",
    }
    return GENERATED.sub(lambda found: found[1] + tables[found[2]] + found[3], PAGE.read_text(encoding="utf-8"))


def families_table() -> str:
    """One row per architecture: the properties of its first layer."""
    rows = [
        [spec.models, _types(spec), positions_of(spec), terms_of(spec), "yes" if spec.mlp else "no", spec.special]
        for spec in SPECS
    ]
    return _table(["models", "`model_type`", "positions", "terms", "block output", "what is special in layer 0"], rows)


def gguf_table() -> str:
    """One row per architecture of GGUF files: the model type whose Spec reads it."""
    rows = [
        [f"`{name}`", f"`{kind.model_type}`", SPEC_OF[kind.model_type].models] for name, kind in ARCHITECTURES.items()
    ]
    return _table(["`general.architecture`", "read as", "models"], rows)


def refused_table() -> str:
    """One row per reason: the model types that can't be read exactly."""
    reasons = dict.fromkeys(REFUSED.values())
    rows = [[", ".join(f"`{name}`" for name in REFUSED if REFUSED[name] == reason), reason] for reason in reasons]
    return _table(["`model_type`", "why"], rows)


def questions_table() -> str:
    """Which questions work for which architectures, given what each question needs."""
    groups: dict[tuple[str, frozenset[Need]], list[Spec]] = {}
    for spec in SPECS:
        groups.setdefault((kind_of(spec), lacking(spec)), []).append(spec)
    rows = [["", *(", ".join(map(_types, specs)) for specs in groups.values())]]
    for name, question in QUESTIONS.items():
        rows.append([name, *("yes" if question.needs.isdisjoint(missing) else "–" for _, missing in groups)])
    return _table(["question", *(kind for kind, _ in groups)], rows)


def kind_of(spec: Spec) -> str:
    kinds = {LearnedPositions: "table of positions", RotaryPositions: "rotary", AlibiPositions: "ALiBi"}
    return kinds[type(spec.positions)] + (", not causal" if lacks_causality(spec) else "")


def lacks_causality(spec: Spec) -> bool:
    return not (spec.is_causal.default if isinstance(spec.is_causal, Switch) else spec.is_causal)


def lacking(spec: Spec) -> frozenset[Need]:
    """What a question may need and this architecture lacks."""
    has_table = isinstance(spec.positions, LearnedPositions)
    absent: dict[Need, bool] = {"position_table": not has_table, "causal": lacks_causality(spec)}
    return frozenset(need for need, is_absent in absent.items() if is_absent)


def positions_of(spec: Spec) -> str:
    match spec.positions:
        case LearnedPositions(table=None):
            return "sinusoidal"
        case LearnedPositions(first_row=0):
            return "learned"
        case LearnedPositions(first_row=row):
            return f"learned, from row {row}"
        case RotaryPositions(is_partial=True) | RotaryPositions(size=str()):
            return "rotary on part of each head"
        case RotaryPositions():
            return "rotary"
        case AlibiPositions():
            return "ALiBi"


def terms_of(spec: Spec) -> str:
    """The number of terms of a score; without biases, some exist only after splitting off a mean."""
    has_biases = spec.projections.biases()[0] is True or (spec.norm_kind == "layer" and spec.norm_bias)
    match spec.positions:
        case LearnedPositions():
            return "six"
        case RotaryPositions():
            return "four" if has_biases else "one; four with a mean"
        case AlibiPositions():
            return "three" if has_biases else "two; three with a mean"


def _types(spec: Spec) -> str:
    return ", ".join(f"`{model_type}`" for model_type in spec.model_types)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
