/** The distribution of scores over the vocabulary, with the partners marked. */

import { histogram } from "../../math/histogram";
import { useExplorer, useWidth } from "../../parts/hooks";
import { fixed, linear, padded, tickText, ticks, whole } from "../../parts/numbers";
import type { Partners } from "./partners";

export const STRIP_HEIGHT = 132;
const BASE = 92;
const TOP = 14;

interface Props {
  found: Partners;
  name: string; // of the score
  pointed: number | null;
}

export function Strip({ found, name, pointed }: Props) {
  const [holder, width] = useWidth<HTMLDivElement>();
  return (
    <div ref={holder} class="strip">
      {width > 0 && (
        <svg role="img" aria-label={described(found, name)} width={width} height={STRIP_HEIGHT}>
          <StripDrawing found={found} name={name} pointed={pointed} width={width} />
        </svg>
      )}
    </div>
  );
}

export function StripDrawing({ found, name, pointed, width }: Props & { width: number }) {
  const { vocabulary } = useExplorer();
  const bins = histogram(
    Float32Array.from(found.candidates, (id) => found.ranked[id]),
    Math.max(20, Math.floor(width / 5)),
  );
  const x = linear(padded([bins.low, bins.high], 0.02), [34, width - 4]);
  const most = Math.max(...bins.counts);
  const y = linear([0, Math.log10(1 + most)], [BASE, TOP]);
  const step = (bins.high - bins.low) / bins.counts.length || 1;
  const bars = bins.counts.map((count, place) => {
    const left = x(bins.low + place * step);
    return count
      ? `M${left.toFixed(1)} ${BASE}V${y(Math.log10(1 + count)).toFixed(1)}H${(x(bins.low + (place + 1) * step) - 0.5).toFixed(1)}V${BASE}Z`
      : "";
  });
  const levels = [1, 10, 100, 1000, 10000, 100000].filter((level) => level <= most);
  return (
    <g>
      <text class="name" x={34} y={9}>
        tokens, log scale
      </text>
      {levels.map((level) => (
        <g key={level} class="axes">
          <line class="grid" x1={34} x2={width} y1={y(Math.log10(1 + level))} y2={y(Math.log10(1 + level))} />
          <text x={30} y={y(Math.log10(1 + level))} dy="0.32em" text-anchor="end">
            {tickText(level)}
          </text>
        </g>
      ))}
      <path class="bars" d={bars.join("")} />
      <g class="axes">
        <line class="axis" x1={34} x2={width} y1={BASE} y2={BASE} />
        {ticks(bins.low, bins.high, Math.max(3, width / 90)).map((tick) => (
          <text key={tick} x={x(tick)} y={BASE + 24} text-anchor="middle">
            {tickText(tick)}
          </text>
        ))}
        <text class="name" x={width - 4} y={STRIP_HEIGHT - 2} text-anchor="end">
          {name}
        </text>
      </g>
      <Marks ids={found.bottom} scores={found.ranked} at={x} kind="negative" />
      <Marks ids={found.top} scores={found.ranked} at={x} kind="positive" />
      {found.candidates.includes(found.question.token) && <Own found={found} at={x} />}
      {pointed !== null && (
        <g class="pointed">
          <line x1={x(found.ranked[pointed])} x2={x(found.ranked[pointed])} y1={TOP} y2={BASE + 10} />
          <text
            x={x(found.ranked[pointed])}
            y={TOP + 4}
            dx={x(found.ranked[pointed]) > width / 2 ? -6 : 6}
            text-anchor={x(found.ranked[pointed]) > width / 2 ? "end" : "start"}
          >
            {vocabulary.shown(pointed)}
          </text>
        </g>
      )}
    </g>
  );
}

function Marks({
  ids,
  scores,
  at,
  kind,
}: {
  ids: number[];
  scores: Float32Array;
  at: (value: number) => number;
  kind: string;
}) {
  return <path class={`mark ${kind}`} d={ids.map((id) => `M${at(scores[id]).toFixed(1)} ${BASE + 1}v9`).join("")} />;
}

/** The score of the token with itself. */
function Own({ found, at }: { found: Partners; at: (value: number) => number }) {
  const place = at(found.ranked[found.question.token]);
  return (
    <path class="own" d={`M${place.toFixed(1)} ${BASE + 1}l4.5 5l-4.5 5l-4.5 -5Z`}>
      <title>the token itself</title>
    </path>
  );
}

function described(found: Partners, name: string): string {
  const { ranked, candidates, top, bottom } = found;
  const own = ranked[found.question.token];
  return (
    `Distribution of ${name} over ${whole(candidates.length)} tokens, from ${fixed(ranked[bottom[0]])} to ${fixed(ranked[top[0]])}. ` +
    `The ${top.length} largest are at ${fixed(ranked[top[top.length - 1]])} and above, the ${bottom.length} smallest at ` +
    `${fixed(ranked[bottom[bottom.length - 1]])} and below; the token with itself has ${fixed(own)}.`
  );
}
