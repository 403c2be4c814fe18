/** Matrix and selected cell for export; cells of one colour are one path. */

import type { TermDescription } from "../../data/contract";
import { hex } from "../../parts/colours";
import { useExplorer } from "../../parts/hooks";
import { share } from "../../parts/numbers";
import type { Drawing } from "../../state/address";
import { scheme } from "../../state/scheme";
import type { Seen } from "./answer";
import { ArcsDrawing, useArcs } from "./Arcs";
import { LegendDrawing } from "./Legend";
import { MatrixLabels } from "./MatrixLabels";
import { cellColour, layoutOf, type Coloured } from "./matrix";
import { Waterfall } from "./Waterfall";

const WIDTH = 760;

interface Props {
  seen: Seen;
  matrix: Coloured;
  what: string;
  terms: TermDescription[];
  cell: [number, number];
  draw: Drawing;
}

export function TextDrawing(props: Props) {
  const { seen, terms, cell, draw } = props;
  const { vocabulary } = useExplorer();
  const [query, key] = cell.map((place) => vocabulary.shown(seen.ids[place]));
  const attention = seen.attention[cell[0] * seen.ids.length + cell[1]];
  return (
    <>
      {draw === "arcs" ? <ArcsPicture {...props} /> : <MatrixPicture {...props} />}
      <svg width={WIDTH} height={20}>
        <text class="title" x={0} y={14}>
          {`${query} (${cell[0]}) attends to ${key} (${cell[1]}): ${share(attention)}`}
        </text>
      </svg>
      <Waterfall seen={seen} terms={terms} cell={cell} width={420} />
    </>
  );
}

function ArcsPicture({ seen, matrix, what, cell }: Props) {
  const { links, layout } = useArcs(seen, matrix, WIDTH);
  return (
    <svg width={Math.max(WIDTH, layout.width)} height={layout.height + 26}>
      <text class="title" x={0} y={14}>
        {`L0H${seen.head}: ${what}`}
      </text>
      <g transform="translate(0 26)">
        <ArcsDrawing {...{ seen, matrix, cell, links, layout }} />
      </g>
    </svg>
  );
}

function MatrixPicture({ seen, matrix, what, cell }: Props) {
  const { vocabulary } = useExplorer();
  const layout = layoutOf(
    seen.ids.map((id) => vocabulary.shown(id)),
    WIDTH,
  );
  return (
    <svg width={WIDTH} height={layout.top + layout.size + 64}>
      <text class="title" x={0} y={14}>
        {`L0H${seen.head}: ${what}`}
      </text>
      <g transform="translate(0 22)">
        <Cells matrix={matrix} left={layout.left} top={layout.top} size={layout.cell} />
        <MatrixLabels layout={layout} cell={cell} />
        <g transform={`translate(${layout.left - 20} ${layout.top + layout.size + 6})`}>
          <LegendDrawing matrix={matrix} theme={scheme.value} />
        </g>
      </g>
    </svg>
  );
}

function Cells({ matrix, left, top, size }: { matrix: Coloured; left: number; top: number; size: number }) {
  const paths = new Map<string, string[]>();
  for (let query = 0; query < matrix.length; query++) {
    for (let key = 0; key < matrix.length; key++) {
      const colour = hex(cellColour(matrix, query, key, scheme.value));
      const found = paths.get(colour) ?? [];
      found.push(`M${key} ${query}h1v1h-1z`);
      paths.set(colour, found);
    }
  }
  return (
    <g transform={`translate(${left} ${top}) scale(${size})`} shape-rendering="crispEdges">
      {[...paths].map(([colour, cells]) => (
        <path key={colour} fill={colour} d={cells.join("")} />
      ))}
    </g>
  );
}
