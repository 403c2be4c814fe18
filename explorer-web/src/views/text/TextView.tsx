/** Attention of a head on a text, its terms, and attention without some of them; two heads or two texts side by side. */

import { useMemo, useState } from "preact/hooks";
import type { SplitName, TermDescription } from "../../data/contract";
import { fileName } from "../../exports/download";
import type { Explorer } from "../../explorer";
import { sees } from "../../math/attention";
import { Downloads } from "../../parts/Downloads";
import { headName } from "../../parts/HeadPicker";
import { useAnswer, useExplorer, useReady } from "../../parts/hooks";
import { idsOf, type Drawing, type State } from "../../state/address";
import { change, state } from "../../state/store";
import { answerOf, firstCell, shownValues, textTable, without, type Seen, type TextAnswer } from "./answer";
import { LEAST } from "./arcs";
import { Arcs } from "./Arcs";
import { CellPanel } from "./CellPanel";
import { Differences } from "./Differences";
import { Legend } from "./Legend";
import { Matrix } from "./Matrix";
import { TextDrawing } from "./TextDrawing";
import { coloured, type Coloured } from "./matrix";
import { ReadingLine } from "./ReadingLine";
import { DrawChoice, ShowChoice, TermSwitches, TextControls } from "./TextControls";

type Cell = [number, number];

interface Side {
  head: number;
  text: string | null; // null: ids
  ids: number[];
}

export function TextView() {
  const explorer = useExplorer();
  const asked = state.value;
  const split = asked.split ?? explorer.bundle.splits[0].name;
  const sides = sidesOf(asked);
  const answer = useAnswer(
    () => Promise.all(sides.map((side) => read(explorer, side, asked.bos, split))),
    [sides, asked.bos, split],
  );
  useReady(!answer.waiting);
  return (
    <section aria-labelledby="view-title">
      <h2 id="view-title">Attention on text</h2>
      <p class="note">
        Which tokens each token attends to, with each score split exactly into its terms. Point at a link to see
        its terms; choose a second head or text to compare.
      </p>
      <TextControls count={answer.problem ? null : (answer.value?.[0].ids.length ?? null)} split={split} />
      {answer.problem && (
        <p class="problem" role="alert">
          {answer.problem}
        </p>
      )}
      {answer.value && !answer.problem && (
        <div class={answer.waiting ? "waiting" : ""} aria-busy={answer.waiting}>
          <TextResult answers={answer.value} split={split} />
        </div>
      )}
    </section>
  );
}

/** What is shown: one head on one text, or a second panel with another head, another text, or both. */
function sidesOf({ heads, text, ids, other }: State): Side[] {
  const first = { head: heads[0], text, ids: text === null ? ids : [] };
  if (heads.length === 1 && other === null) return [first];
  const head = heads[1] ?? heads[0];
  if (other === null) return [first, { ...first, head }];
  return [first, { head, ...(text === null ? { text, ids: idsOf(other) } : { text: other, ids: [] }) }];
}

/** The ids of the input and their terms. */
async function read(explorer: Explorer, side: Side, bos: boolean, split: SplitName): Promise<TextAnswer> {
  const typed = side.text === null ? side.ids : await explorer.tokenizer.encode(side.text);
  const { beginning } = explorer.bundle;
  return answerOf(explorer, side.head, bos && beginning !== null ? [beginning, ...typed] : typed, split);
}

interface Panel {
  seen: Seen;
  matrix: Coloured;
}

function TextResult({ answers, split }: { answers: TextAnswer[]; split: SplitName }) {
  const explorer = useExplorer();
  const asked = state.value;
  const off = asked.off.join(",");
  const terms = explorer.split(split).terms;
  const panels = useMemo(
    () =>
      answers.map((answer): Panel => {
        const seen = without(explorer, answer, asked.off);
        const { values, isShare } = shownValues(seen, asked.show);
        return { seen, matrix: coloured(values, seen.ids.length, isShare, explorer.sight) };
      }),
    [answers, off, asked.show],
  );
  const first = valid(asked.cell, panels[0].seen, explorer) ?? firstCell(panels[0].seen);
  const cells = panels.map(({ seen }, place) =>
    place === 0 ? first : (valid(asked.cell2, seen, explorer) ?? (asked.other === null ? first : firstCell(seen))),
  ); // two heads are compared at the same link
  const what = whatIsShown(asked.show, terms, panels[0].seen);
  const names = panels.map(({ seen }) => headName(seen.head));
  return (
    <>
      <TermSwitches terms={terms} />
      <div class="row drawing-choices">
        <DrawChoice />
        <ShowChoice terms={terms} hasOff={panels[0].seen.off.length > 0} />
      </div>
      <div class={panels.length > 1 ? "compared" : ""}>
        {panels.map((panel, place) => (
          <TextPanel
            key={place}
            {...panel}
            name={panels.length > 1 && asked.other !== null ? `${names[place]}, ${place ? "second" : "first"} text` : names[place]}
            what={what}
            terms={terms}
            cell={cells[place]}
            choose={(cell) => change(place ? { cell2: cell } : { cell })}
            draw={asked.draw}
            isAlone={panels.length === 1}
          />
        ))}
      </div>
      {panels.length > 1 && <Differences one={panels[0].seen} other={panels[1].seen} />}
      <Downloads
        name={fileName(explorer.bundle.model.name, "text", ...new Set(names))}
        title={`${explorer.bundle.model.name} ${names.join(" and ")}: ${what}`}
        picture={() =>
          panels.map((panel, place) => (
            <TextDrawing key={place} {...panel} what={what} terms={terms} cell={cells[place]} draw={asked.draw} />
          ))
        }
        tables={Object.fromEntries(
          panels.map(({ seen }, place) => [place ? "CSV of the second" : "CSV", () => textTable(explorer, seen)]),
        )}
      />
    </>
  );
}

interface PanelProps extends Panel {
  name: string;
  what: string;
  terms: TermDescription[];
  cell: Cell;
  choose: (cell: Cell) => void;
  draw: Drawing;
  isAlone: boolean;
}

function TextPanel({ seen, matrix, name, what, terms, cell, choose, draw, isAlone }: PanelProps) {
  const explorer = useExplorer();
  const [pointed, hover] = useState<Cell | null>(null);
  const hovered = valid(pointed, seen, explorer);
  const shown = hovered ?? cell;
  const pick = (chosen: Cell) => {
    hover(null);
    choose(chosen);
  };
  const common = { seen, matrix, what: `${name}: ${what}`, cell: shown, hover, choose: pick };
  return (
    <div class={isAlone ? "columns" : ""}>
      <figure>
        <figcaption>
          <strong>
            {name}: {what}.
          </strong>{" "}
          {draw === "arcs" &&
            `Arcs connect queries to keys; links below ${matrix.isShare ? "" : "5 % of the largest"}${matrix.isShare ? LEAST : ""} are not drawn.`}
        </figcaption>
        {draw === "arcs" ? (
          <Arcs {...common} hovered={hovered} terms={terms} />
        ) : (
          <>
            <ReadingLine seen={seen} query={shown[0]} choose={pick} />
            <Matrix {...common} />
            <Legend matrix={matrix} />
          </>
        )}
      </figure>
      <CellPanel seen={seen} terms={terms} cell={shown} />
    </div>
  );
}

/** The cell, if it is inside the text and not masked. */
function valid(cell: Cell | null, seen: Seen, explorer: Explorer): Cell | null {
  if (!cell || cell[0] >= seen.ids.length || cell[1] >= seen.ids.length) return null;
  return sees(explorer.sight, ...cell) ? cell : null;
}

function whatIsShown(show: string, terms: { name: string; symbol: string }[], seen: Seen): string {
  const symbols = terms.filter((term) => seen.off.includes(term.name)).map((term) => term.symbol);
  const missing = symbols.length ? ` without ${symbols.join(", ")}` : "";
  if (show === "change") return `change of attention${missing}`;
  if (show === "score") return `score${missing}`;
  const term = terms.find((each) => each.name === show);
  return term ? term.symbol : `attention${missing}`;
}
