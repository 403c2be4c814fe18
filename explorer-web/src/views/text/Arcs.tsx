/** Attention as arcs over the tokens: from each query to the keys that it attends to. */

import { useMemo } from "preact/hooks";
import type { TermDescription } from "../../data/contract";
import { css, inkOn, shareColour } from "../../parts/colours";
import { useExplorer, useWidth } from "../../parts/hooks";
import { share, signed } from "../../parts/numbers";
import { scheme } from "../../state/scheme";
import { mostAttended, type Seen } from "./answer";
import { arcLayout, arcOf, linksOf, type ArcLayout, type Link } from "./arcs";
import { cellText, cut, stepped, type Coloured } from "./matrix";

interface Props {
  seen: Seen;
  matrix: Coloured;
  what: string;
  terms: TermDescription[];
  cell: [number, number];
  hovered: [number, number] | null;
  hover: (cell: [number, number] | null) => void;
  choose: (cell: [number, number]) => void;
}

export function Arcs(props: Props) {
  const [holder, width] = useWidth<HTMLDivElement>();
  return (
    <div ref={holder} class="arcs">
      {width > 0 && <Drawn {...props} width={width} />}
    </div>
  );
}

function Drawn({ seen, matrix, what, terms, cell, hovered, hover, choose, width }: Props & { width: number }) {
  const { sight, vocabulary } = useExplorer();
  const { links, layout } = useArcs(seen, matrix, width);
  const pointed = hovered && links.find(({ query, key }) => query === hovered[0] && key === hovered[1]);
  const move = (event: KeyboardEvent) => {
    const next = stepped(cell, event.key, seen.ids.length, sight);
    if (!next) return;
    event.preventDefault();
    choose(next);
  };
  return (
    <div
      class="arcs-drawn"
      role="application"
      tabindex={0}
      aria-roledescription="arcs"
      aria-label={`${what}, ${seen.ids.length} tokens. Use the arrow keys to move. Selected: ${cellText(vocabulary, seen, matrix, cell)}`}
      onKeyDown={move}
    >
      <svg aria-hidden="true" width={layout.width} height={layout.height}>
        <ArcsDrawing {...{ seen, matrix, cell, links, layout, hover, choose }} />
      </svg>
      {pointed && <Tip {...{ seen, terms, cell: hovered as [number, number], layout, link: pointed }} />}
    </div>
  );
}

export function useArcs(seen: Seen, matrix: Coloured, width: number): { links: Link[]; layout: ArcLayout } {
  const { vocabulary } = useExplorer();
  return useMemo(() => {
    const links = linksOf(matrix);
    const labels = seen.ids.map((id) => cut(vocabulary.shown(id), 14));
    return { links, layout: arcLayout(labels, width, links) };
  }, [seen.ids, matrix, width]);
}

interface DrawingProps {
  seen: Seen;
  matrix: Coloured;
  cell: [number, number];
  links: Link[];
  layout: ArcLayout;
  hover?: (cell: [number, number] | null) => void;
  choose?: (cell: [number, number]) => void;
}

export function ArcsDrawing({ seen, matrix, cell, links, layout, hover, choose }: DrawingProps) {
  return (
    <>
      {links.map((link) => {
        const { query, key, size, isNegative } = link;
        const { path } = arcOf(layout, link);
        const isOwn = query === cell[0];
        return (
          <g
            key={`${query},${key}`}
            class={`arc ${isNegative ? "less" : "more"} ${isOwn && key === cell[1] ? "chosen-arc" : isOwn ? "own-arc" : ""}`}
            onPointerEnter={() => hover?.([query, key])}
            onPointerLeave={() => hover?.(null)}
            onClick={() => choose?.([query, key])}
          >
            <path class="line" d={path} stroke-width={0.8 + 5 * size} />
            {hover && <path class="hit" d={path} />}
          </g>
        );
      })}
      {seen.ids.map((id, place) => (
        <Token
          key={place}
          id={id}
          place={place}
          layout={layout}
          share={matrix.isShare ? seen.attention[cell[0] * seen.ids.length + place] : 0}
          isQuery={place === cell[0]}
          choose={() => choose?.([place, mostAttended(seen, place)])}
        />
      ))}
    </>
  );
}

interface TokenProps {
  id: number;
  place: number;
  layout: ArcLayout;
  share: number;
  isQuery: boolean;
  choose: () => void;
}

/** A token, coloured by the attention that it gets from the selected query. */
function Token({ id, place, layout, share: got, isQuery, choose }: TokenProps) {
  const { vocabulary } = useExplorer();
  const { isRow, middles, sizes, band } = layout;
  const colour = shareColour(got, scheme.value);
  const across = band[1] - band[0];
  const begin = middles[place] - sizes[place] / 2;
  const box = isRow
    ? { x: begin + 1, y: band[0], width: sizes[place] - 2, height: across }
    : { x: band[0], y: begin + 1, width: across, height: sizes[place] - 2 };
  return (
    <g class={`arc-token ${isQuery ? "query" : ""}`} onClick={choose}>
      <rect {...box} rx={4} fill={css(colour)} />
      <text
        class="token"
        x={isRow ? middles[place] : (band[0] + band[1]) / 2}
        y={isRow ? (band[0] + band[1]) / 2 : middles[place]}
        dy="0.34em"
        text-anchor="middle"
        style={{ fill: inkOn(colour) }}
      >
        {cut(vocabulary.shown(id), isRow ? 14 : Math.max(3, Math.floor((across - 8) / 7.2)))}
      </text>
    </g>
  );
}

interface TipProps {
  seen: Seen;
  terms: TermDescription[];
  cell: [number, number];
  layout: ArcLayout;
  link: Link;
}

/** The terms of the link under the pointer. The panel says the same to screen readers. */
function Tip({ seen, terms, cell, layout, link }: TipProps) {
  const { vocabulary } = useExplorer();
  const [x, y] = arcOf(layout, link).apex;
  const place = cell[0] * seen.ids.length + cell[1];
  const left = Math.max(0, Math.min(x + 12, layout.width - 170));
  return (
    <div class="tip" aria-hidden="true" style={{ left: `${left}px`, top: `${y + 10}px` }}>
      <b>
        <bdi class="token">{vocabulary.shown(seen.ids[cell[0]])}</bdi> →{" "}
        <bdi class="token">{vocabulary.shown(seen.ids[cell[1]])}</bdi> {share(seen.attention[place])}
      </b>
      {terms.map(({ name, symbol }) => (
        <span key={name} class={seen.off.includes(name) ? "soft" : ""}>
          <span>{symbol}</span> <span>{signed(seen.terms.parts[name][place])}</span>
        </span>
      ))}
      <span class="sum">
        <span>score</span> <span>{signed(seen.score[place])}</span>
      </span>
    </div>
  );
}
