/** The terms of one cell as a waterfall chart that adds up to the score. */

import type { TermDescription } from "../../data/contract";
import { linear, padded, signed, tickText, ticks } from "../../parts/numbers";
import type { Seen } from "./answer";

const ROW = 26;
const TOP = 8;

interface Props {
  seen: Seen;
  terms: TermDescription[];
  cell: [number, number];
  width: number;
}

interface Bar {
  name: string;
  symbol: string;
  value: number;
  from: number;
  to: number;
  isOff: boolean;
}

export function Waterfall({ seen, terms, cell, width }: Props) {
  const bars = barsOf(seen, terms, cell);
  const score = bars.length ? bars[bars.length - 1].to : 0;
  const ends = bars.flatMap((bar) => [bar.from, bar.isOff ? bar.from + bar.value : bar.to]);
  const [labels, numbers] = [46, 66];
  const x = linear(padded([Math.min(0, ...ends), Math.max(0, ...ends)]), [labels, width - numbers]);
  const height = TOP + ROW * (bars.length + 1) + 30;
  const bottom = TOP + ROW * (bars.length + 1);
  return (
    <svg class="waterfall" role="img" aria-label={described(bars, score)} width={width} height={height}>
      <line class="zero" x1={x(0)} x2={x(0)} y1={TOP - 4} y2={bottom} />
      {bars.map((bar, place) => (
        <BarRow key={bar.name} bar={bar} top={TOP + ROW * place} x={x} right={width} />
      ))}
      <g>
        <line class="sum-line" x1={labels} x2={width} y1={bottom - ROW} y2={bottom - ROW} />
        <text x={0} y={bottom - ROW / 2} dy="0.32em" class="strong">
          score
        </text>
        <rect
          class={score < 0 ? "negative" : "positive"}
          {...box(x(0), x(score))}
          y={bottom - ROW + 5}
          height={ROW - 10}
        />
        <text class="strong" x={width} y={bottom - ROW / 2} dy="0.32em" text-anchor="end">
          {signed(score)}
        </text>
      </g>
      <g class="axes">
        <line class="axis" x1={labels} x2={width - numbers} y1={bottom} y2={bottom} />
        {ticks(x.invert(labels), x.invert(width - numbers), 4).map((tick) => (
          <text key={tick} x={x(tick)} y={bottom + 16} text-anchor="middle">
            {tickText(tick)}
          </text>
        ))}
      </g>
    </svg>
  );
}

function BarRow({ bar, top, x, right }: { bar: Bar; top: number; x: (value: number) => number; right: number }) {
  const kind = bar.value < 0 ? "negative" : "positive";
  const end = bar.isOff ? bar.from + bar.value : bar.to;
  return (
    <g class={bar.isOff ? "off" : ""}>
      <text x={0} y={top + ROW / 2} dy="0.32em">
        {bar.symbol}
      </text>
      <rect
        class={`${kind} ${bar.isOff ? "hollow" : ""}`}
        {...box(x(bar.from), x(end))}
        y={top + 5}
        height={ROW - 10}
      />
      {!bar.isOff && <line class="joint" x1={x(bar.to)} x2={x(bar.to)} y1={top + ROW - 5} y2={top + ROW + 5} />}
      <text x={right} y={top + ROW / 2} dy="0.32em" text-anchor="end">
        {bar.isOff ? `(${signed(bar.value)})` : signed(bar.value)}
      </text>
    </g>
  );
}

function box(one: number, other: number): { x: number; width: number } {
  return { x: Math.min(one, other), width: Math.max(1, Math.abs(other - one)) };
}

function barsOf(seen: Seen, terms: TermDescription[], [query, key]: [number, number]): Bar[] {
  let from = 0;
  return terms.map(({ name, symbol }) => {
    const value = seen.terms.parts[name][query * seen.ids.length + key];
    const isOff = seen.off.includes(name);
    const bar = { name, symbol, value, from, to: isOff ? from : from + value, isOff };
    from = bar.to;
    return bar;
  });
}

function described(bars: Bar[], score: number): string {
  const parts = bars.map((bar) => `${bar.symbol} ${signed(bar.value)}${bar.isOff ? " (off)" : ""}`);
  return `Terms of this cell: ${parts.join(", ")}; score ${signed(score)}`;
}
