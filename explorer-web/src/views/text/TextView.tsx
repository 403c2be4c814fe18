/** Attention of a head on a text, its terms, and attention without some of them. */

import { useMemo, useState } from "preact/hooks";
import type { SplitName } from "../../data/contract";
import { fileName } from "../../exports/download";
import { sees } from "../../math/attention";
import { Downloads } from "../../parts/Downloads";
import { headName } from "../../parts/HeadPicker";
import { useAnswer, useExplorer, useReady } from "../../parts/hooks";
import type { State } from "../../state/address";
import { change, state } from "../../state/store";
import { answerOf, firstCell, shownValues, textTable, without, type Seen, type TextAnswer } from "./answer";
import { CellPanel } from "./CellPanel";
import { Legend } from "./Legend";
import { Matrix } from "./Matrix";
import { TextDrawing } from "./TextDrawing";
import { coloured } from "./matrix";
import { ReadingLine } from "./ReadingLine";
import { ShowChoice, TermSwitches, TextControls } from "./TextControls";

export function TextView() {
  const explorer = useExplorer();
  const asked = state.value;
  const split = asked.split ?? explorer.bundle.splits[0].name;
  const head = asked.heads[0];
  const answer = useAnswer(() => read(explorer, asked, head, split), [asked.text, asked.ids, asked.bos, head, split]);
  useReady(!answer.waiting);
  return (
    <section aria-labelledby="view-title">
      <h2 id="view-title">Attention on text</h2>
      <p class="note">
        One head's attention on a text, with each score split exactly into its terms. Point at a cell to see its terms.
      </p>
      <TextControls count={answer.problem ? null : (answer.value?.ids.length ?? null)} split={split} />
      {answer.problem && (
        <p class="problem" role="alert">
          {answer.problem}
        </p>
      )}
      {answer.value && !answer.problem && (
        <div class={answer.waiting ? "waiting" : ""} aria-busy={answer.waiting}>
          <TextResult answer={answer.value} split={split} />
        </div>
      )}
    </section>
  );
}

/** The ids of the input and their terms. */
async function read(
  explorer: ReturnType<typeof useExplorer>,
  asked: State,
  head: number,
  split: SplitName,
): Promise<TextAnswer> {
  const typed = asked.text === null ? asked.ids : await explorer.tokenizer.encode(asked.text);
  const { beginning } = explorer.bundle;
  return answerOf(explorer, head, asked.bos && beginning !== null ? [beginning, ...typed] : typed, split);
}

function TextResult({ answer, split }: { answer: TextAnswer; split: SplitName }) {
  const explorer = useExplorer();
  const asked = state.value;
  const [hovered, hover] = useState<[number, number] | null>(null);
  const off = asked.off.join(",");
  const seen = useMemo(() => without(explorer, answer, asked.off), [answer, off]);
  const { values, isShare } = useMemo(() => shownValues(seen, asked.show), [seen, asked.show]);
  const matrix = useMemo(() => coloured(values, seen.ids.length, isShare, explorer.sight), [values, isShare]);
  const cell = valid(hovered, seen, explorer) ?? valid(asked.cell, seen, explorer) ?? firstCell(seen);
  const terms = explorer.split(split).terms;
  const what = whatIsShown(asked.show, terms, seen);
  const choose = (chosen: [number, number]) => {
    hover(null);
    change({ cell: chosen });
  };
  return (
    <>
      <TermSwitches terms={terms} />
      <ReadingLine seen={seen} query={cell[0]} choose={choose} />
      <div class="columns">
        <figure>
          <figcaption>
            <strong>
              {headName(seen.head)}: {what}.
            </strong>{" "}
            <ShowChoice terms={terms} hasOff={seen.off.length > 0} />
          </figcaption>
          <Matrix
            seen={seen}
            matrix={matrix}
            what={`${headName(seen.head)}: ${what}`}
            cell={cell}
            hover={hover}
            choose={choose}
          />
          <Legend matrix={matrix} />
        </figure>
        <CellPanel seen={seen} terms={terms} cell={cell} />
      </div>
      <Downloads
        name={fileName(explorer.bundle.model.name, "text", headName(seen.head))}
        title={`${explorer.bundle.model.name} ${headName(seen.head)}: ${what}`}
        picture={() => <TextDrawing seen={seen} matrix={matrix} what={what} terms={terms} cell={cell} />}
        tables={{ CSV: () => textTable(explorer, seen) }}
      />
    </>
  );
}

/** The cell, if it is inside the text and not masked. */
function valid(
  cell: [number, number] | null,
  seen: Seen,
  explorer: ReturnType<typeof useExplorer>,
): [number, number] | null {
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
