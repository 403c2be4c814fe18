/** The scorecard: one row per head, a verdict for each measure, and the reasons for the chosen head. */

import type { HeadCards, Mark } from "../../data/contract";
import { headName } from "../../parts/HeadPicker";
import { fixed } from "../../parts/numbers";
import { change, state } from "../../state/store";
import { HeadLink } from "./HeadLink";

const SIGNS = { yes: "✓", no: "–", "not testable": "?" };
const words = (name: string) => name.replaceAll("_", " ");
const percent = (share: number) => `${fixed(100 * share, 0)} %`;
/** The number next to a verdict; none where the layer writes no words that could be lost without the head. */
const shownValue = ({ measure, value, verdict }: Mark) => (measure === "writes_words" && verdict !== "yes" ? null : value);
/** The measures whose number is a share or has a unit; the others are plain numbers. */
const UNITS: Record<string, (value: number) => string> = {
  writes_words: (value) => `${percent(value)} lost without it`,
  matches_itself: (value) => `z ${fixed(value, 1)}`,
  sink: percent,
};

export function Scorecard({ cards }: { cards: HeadCards }) {
  const measures = Object.keys(cards.measures);
  const marks = new Map(cards.marks.map((mark) => [`${mark.head} ${mark.measure}`, mark]));
  const chosen = state.value.heads[0];
  return (
    <>
      <table class="cards scorecard">
        <caption>Scorecard. Choose a head to see the reasons.</caption>
        <thead>
          <tr>
            <th scope="col">head</th>
            <th scope="col" class="number">
              strength (nats)
            </th>
            <th scope="col">score varies with</th>
            {measures.map((measure) => (
              <th key={measure} scope="col" title={cards.measures[measure]}>
                {words(measure)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {cards.rows.map((row) => {
            const head = Number(row.head);
            return (
              <tr key={head} class={head === chosen ? "chosen-row" : ""}>
                <td>
                  <button type="button" aria-pressed={head === chosen} onClick={() => change({ heads: [head] }, true)}>
                    {headName(head)}
                  </button>
                </td>
                <td class="number" data-label="strength (nats)">
                  {typeof row.sd === "number" ? Number(row.sd.toPrecision(2)) : "–"}
                </td>
                <td data-label="score varies with">
                  <Shares row={row} names={cards.shares} />
                </td>
                {measures.map((measure) => (
                  <td key={measure} data-label={words(measure)}>
                    <Verdict mark={marks.get(`${head} ${measure}`)} />
                  </td>
                ))}
              </tr>
            );
          })}
        </tbody>
      </table>
      <Reasons cards={cards} head={chosen} />
    </>
  );
}

function Verdict({ mark }: { mark: Mark | undefined }) {
  if (!mark) return <>–</>;
  const value = shownValue(mark);
  return (
    <span class={`verdict ${mark.verdict === "yes" ? "yes" : ""}`} title={mark.why}>
      <span aria-hidden="true">{SIGNS[mark.verdict]}</span> {mark.verdict}
      {value !== null && <span class="soft"> {(UNITS[mark.measure] ?? fixed)(value)}</span>}
    </span>
  );
}

/** The shares of the score's variance as one bar, the two largest in words. */
function Shares({ row, names }: { row: HeadCards["rows"][number]; names: HeadCards["shares"] }) {
  const shares = Object.entries(names).map(([column, name], kind) => ({ name, kind, share: Number(row[column] ?? 0) }));
  const largest = [...shares].sort((one, other) => other.share - one.share).slice(0, 2);
  let begin = 0;
  return (
    <span class="shares">
      <svg width={72} height={10} aria-hidden="true">
        {shares.map(({ kind, share }) => {
          const left = begin;
          begin += share;
          return <rect key={kind} class={`share-${kind}`} x={left * 72} width={share * 72} height={10} />;
        })}
      </svg>{" "}
      {largest
        .filter(({ share }) => share > 0)
        .map(({ name, share }) => `${name} ${percent(share)}`)
        .join(", ") || "–"}
    </span>
  );
}

function Reasons({ cards, head }: { cards: HeadCards; head: number }) {
  const marks = cards.marks.filter((mark) => mark.head === head);
  return (
    <section class="reasons" aria-label={`${headName(head)} in detail`}>
      <h3>
        {headName(head)}{" "}
        <span class="links">
          {(["token", "text", "positions"] as const).map((view) => (
            <HeadLink key={view} head={head} view={view} label={view} />
          ))}
        </span>
      </h3>
      <dl>
        {marks.map((mark) => {
          const { measure, verdict, why } = mark;
          const value = shownValue(mark);
          return (
            <div key={measure}>
              <dt>
                {words(measure)}: <b>{verdict}</b>
              </dt>
              <dd>
                {(value !== null || !why) && cards.measures[measure]}
                {value !== null && <b> {UNITS[measure]?.(value) ?? fixed(value, 3)}</b>}
                {value !== null && why && "; "}
                <span class="soft">{why}</span>
              </dd>
            </div>
          );
        })}
      </dl>
      <p class="note">
        Strength is the standard deviation of the scaled score; the bar shows what that score varies with (offset: distance
        to the key; query × key: token pair).
      </p>
    </section>
  );
}
