"""Tables in, matplotlib figures out, without any state: the only room that imports matplotlib.

from detoklens.figures import FIGURES
from detoklens.figures.save import save
from detoklens.figures.svg import svg_text

spec = FIGURES["position_alone"]                       # registry.py: name, question, tables, title, caption
figure = spec.draw({"positions": frame}, heads=[7, 1], width="column")
save(figure, Path("figures"), spec.name, title=spec.title, description=spec.caption)   # .svg, .pdf, .png
inline = svg_text(figure, spec.name, spec.title, spec.caption)                         # for a page, light or dark
"""

from detoklens.figures.registry import COMPARISONS, FIGURES, QUESTIONS, FigureSpec

__all__ = ["COMPARISONS", "FIGURES", "QUESTIONS", "FigureSpec"]
