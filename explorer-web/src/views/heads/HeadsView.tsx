/** Where the page opens: the scorecard of heads, a tour of the views, all head cards, a scatter plot of two columns. */

import type { Cell, HeadCards, HeadColumn, Verdict } from "../../data/contract";
import { fileName } from "../../exports/download";
import { Switch } from "../../parts/Choice";
import { Downloads } from "../../parts/Downloads";
import { headName } from "../../parts/HeadPicker";
import { useAnswer, useExplorer, useReady, useWidth } from "../../parts/hooks";
import { VIEW_LINES } from "../../parts/views";
import { addressAfter, change, state } from "../../state/store";
import { CardsDrawing } from "./CardsDrawing";
import { HeadLink } from "./HeadLink";
import { Scorecard } from "./Scorecard";
import { Scatter } from "./Scatter";
import { numeric, shownCell, sorted } from "./cards";

export function HeadsView() {
  const explorer = useExplorer();
  const answer = useAnswer(() => explorer.headCards(), []);
  useReady(!answer.waiting);
  return (
    <section aria-labelledby="view-title">
      <h2 id="view-title">Heads</h2>
      <p class="note">{VIEW_LINES.heads}</p>
      {answer.problem && <p class="notice">{answer.problem}</p>}
      {answer.waiting && explorer.bundle.heads_pending && (
        <p class="notice" role="status">
          The head cards are being computed and will appear here. The other views are ready.
        </p>
      )}
      {answer.value && <Answer cards={answer.value} />}
      <Tour />
      {answer.value && <Cards cards={answer.value} />}
    </section>
  );
}

function Answer({ cards }: { cards: HeadCards }) {
  return (
    <>
      <p class="answer">{cards.sentence}</p>
      {cards.verdict && <p class="note">{verdictText(cards.verdict)}</p>}
      <Scorecard cards={cards} />
    </>
  );
}

/** The other views, one line each. */
function Tour() {
  return (
    <ul class="tour" aria-label="Views">
      {(["token", "text", "positions"] as const).map((view) => (
        <li key={view}>
          <a
            href={addressAfter({ view })}
            onClick={(event) => {
              event.preventDefault();
              change({ view }, true);
            }}
          >
            {view[0].toUpperCase() + view.slice(1)}
          </a>
          <span class="soft">{VIEW_LINES[view]}</span>
        </li>
      ))}
    </ul>
  );
}

function Cards({ cards }: { cards: HeadCards }) {
  const explorer = useExplorer();
  const [holder, width] = useWidth<HTMLDivElement>();
  const { all, sort, descending, x, y } = state.value;
  const first = cards.shown
    .map((name) => cards.columns.find((column) => column.name === name))
    .filter((column) => column !== undefined);
  const columns = all ? [...first, ...cards.columns.filter((column) => !first.includes(column))] : first;
  const rows = sorted(cards.rows, sort, descending);
  const axes = axesOf(cards, x, y);
  return (
    <>
      <h3>Head cards: the numbers behind the scorecard</h3>
      <CardTable columns={columns} rows={rows} />
      <div class="row">
        <Switch label={`all ${cards.columns.length} columns`} on={all} turn={(on) => change({ all: on })} />
      </div>
      {cards.missing.length > 0 && (
        <details>
          <summary>Unknown for this model: {cards.missing.length} columns</summary>
          <ul>
            {cards.missing.map((column) => (
              <li key={column.name}>
                {column.name}: {column.meaning}
              </li>
            ))}
          </ul>
        </details>
      )}
      {axes && (
        <figure ref={holder as never}>
          <figcaption>
            <strong>Scatter plot of two columns.</strong> <AxisChoice name="x" chosen={axes[0]} cards={cards} />{" "}
            <AxisChoice name="y" chosen={axes[1]} cards={cards} />
          </figcaption>
          {width > 0 && <Scatter cards={cards} x={axes[0]} y={axes[1]} width={Math.min(width, 760)} />}
          <p class="note">
            {axes[0].name}: {axes[0].meaning}. {axes[1].name}: {axes[1].meaning}.
          </p>
        </figure>
      )}
      <Downloads
        name={fileName(explorer.bundle.model.name, "heads")}
        title={`${explorer.bundle.model.name}: heads`}
        picture={() => (
          <CardsDrawing
            cards={cards}
            axes={axes}
            columns={first}
            rows={rows}
            title={`${explorer.bundle.model.name}: heads`}
          />
        )}
        tables={{
          CSV: () => ({
            columns: cards.columns.map((column) => column.name),
            rows: rows.map((row) => cards.columns.map((column) => row[column.name] ?? null)),
          }),
        }}
      />
    </>
  );
}

function verdictText({ value, heads, reason }: Verdict): string {
  const named = value === "yes" && heads.length ? ` (${heads.join(", ")})` : "";
  return `Verdict: ${value === "untestable" ? "not testable" : value}${named}: ${reason}.`;
}

function CardTable({ columns, rows }: { columns: HeadColumn[]; rows: Record<string, Cell>[] }) {
  const { sort, descending } = state.value;
  const press = (name: string) => change({ sort: name, descending: name === sort ? !descending : name !== "head" });
  return (
    <div class="scroll" role="region" aria-label="Head cards" tabindex={0}>
      <table class="cards">
        <caption>Click a heading to sort, a head to open it</caption>
        <thead>
          <tr>
            {columns.map(({ name, meaning, dtype }) => (
              <th
                key={name}
                scope="col"
                title={meaning}
                class={dtype === "String" ? "" : "number"}
                aria-sort={name !== sort ? undefined : descending ? "descending" : "ascending"}
              >
                <button type="button" onClick={() => press(name)}>
                  {name.replaceAll("_", " ")}
                </button>
              </th>
            ))}
            <th scope="col">open in</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={String(row.head)}>
              {columns.map(({ name, dtype }) => (
                <td key={name} data-label={name.replaceAll("_", " ")} class={dtype === "String" ? "" : "number"}>
                  {name === "head" ? (
                    <HeadLink head={Number(row.head)} view="token" label={headName(Number(row.head))} />
                  ) : (
                    shownCell(row[name])
                  )}
                </td>
              ))}
              <td class="links" data-label="open in">
                {(["token", "text", "positions"] as const).map((view) => (
                  <HeadLink key={view} head={Number(row.head)} view={view} label={view} />
                ))}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}


function AxisChoice({ name, chosen, cards }: { name: "x" | "y"; chosen: HeadColumn; cards: HeadCards }) {
  return (
    <label class="inline">
      {name}{" "}
      <select value={chosen.name} onChange={(event) => change({ [name]: event.currentTarget.value })}>
        {numeric(cards).map((column) => (
          <option key={column.name} value={column.name}>
            {column.name.replaceAll("_", " ")}
          </option>
        ))}
      </select>
    </label>
  );
}

/** The two chosen columns, or the first two of the main ones. */
function axesOf(cards: HeadCards, x: string | null, y: string | null): [HeadColumn, HeadColumn] | null {
  const columns = numeric(cards);
  const find = (name: string | null) => columns.find((column) => column.name === name);
  const usual = cards.shown.map(find).filter((column) => column !== undefined && column.name !== "head");
  const [one, other] = [find(x) ?? usual[0] ?? columns[0], find(y) ?? usual[1] ?? columns[1] ?? columns[0]];
  return one && other ? [one, other] : null;
}
