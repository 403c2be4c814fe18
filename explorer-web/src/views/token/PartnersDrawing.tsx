/** Partners for export: distribution and lists in one drawing. */

import { countShown } from "../../data/counts";
import { headName } from "../../parts/HeadPicker";
import { useExplorer } from "../../parts/hooks";
import { fixed } from "../../parts/numbers";
import { described, type Partners } from "./partners";
import { StripDrawing, STRIP_HEIGHT } from "./Strip";

const WIDTH = 760;
const LINE = 18;

export function PartnersDrawing({ found, counts }: { found: Partners; counts: Map<number, number> | null }) {
  const { vocabulary } = useExplorer();
  const { question } = found;
  const name = question.centred ? "Tᵉᵉ centred" : "Tᵉᵉ";
  const asks = question.way === "looks" ? "looks for" : "is looked for by";
  const height = 34 + STRIP_HEIGHT + LINE * (found.top.length + 2);
  return (
    <svg width={WIDTH} height={height}>
      <text class="title" x={0} y={16}>
        {`${headName(question.head)}: ${vocabulary.shown(question.token)} ${asks}`}
      </text>
      <g transform="translate(0 28)">
        <StripDrawing found={found} name={name} pointed={null} width={WIDTH} />
      </g>
      <g transform={`translate(0 ${34 + STRIP_HEIGHT})`}>
        <Column title={`Largest ${name}`} left={0} found={found} ids={found.top} counts={counts} />
        <Column title={`Smallest ${name}`} left={WIDTH / 2 + 10} found={found} ids={found.bottom} counts={counts} />
      </g>
    </svg>
  );
}

interface ColumnProps {
  title: string;
  left: number;
  found: Partners;
  ids: number[];
  counts: Map<number, number> | null;
}

function Column({ title, left, found, ids, counts }: ColumnProps) {
  const explorer = useExplorer();
  const { token, way } = found.question;
  const right = left + WIDTH / 2 - 20;
  return (
    <g>
      <text class="name" x={left} y={LINE - 4}>
        {title}
      </text>
      <text class="name" x={right} y={LINE - 4} text-anchor="end">
        {counts ? "score, count" : "score"}
      </text>
      {ids.map((id, place) => {
        const partner = described(explorer, found, counts, id);
        const joined =
          way === "looks" ? explorer.vocabulary.joinedShown(id, token) : explorer.vocabulary.joinedShown(token, id);
        const y = (place + 2) * LINE - 4;
        return (
          <g key={id}>
            <text class="token" x={left} y={y}>
              {`${place + 1}. ${explorer.vocabulary.shown(id)}`}
            </text>
            <text class="token soft" x={left + 150} y={y}>
              {joined + (partner.is_token === null ? "" : " (a token)")}
            </text>
            <text x={right} y={y} text-anchor="end">
              {fixed(found.ranked[id]) + (counts ? `, ${countShown(partner)}` : "")}
            </text>
          </g>
        );
      })}
    </g>
  );
}
