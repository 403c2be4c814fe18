/** Charts of the position terms (or the kernel) and of the softmax of their sum. */

import { LineChart, type Curve } from "../../parts/LineChart";
import { useExplorer } from "../../parts/hooks";
import { fixed, share } from "../../parts/numbers";
import { extent } from "../../math/histogram";
import type { PositionAnswer } from "./curves";

interface Props {
  answer: PositionAnswer;
  norm: boolean;
  width: number;
  drag?: (query: number) => void;
}

export function curvesOf(answer: PositionAnswer, norm: boolean): Curve[] {
  if (answer.kernel) return [{ name: "kernel", kind: "sum", ...answer.kernel }];
  const { first, p, pp, sum } = chosen(answer, norm);
  return [
    { name: "Tᵖ", kind: "one", first, values: p ?? [] },
    { name: "Tᵖᵖ", kind: "other", first, values: pp ?? [] },
    { name: "Tᵖ + Tᵖᵖ", kind: "sum", first, values: sum },
  ];
}

function chosen(answer: PositionAnswer, norm: boolean) {
  return norm || !answer.undivided ? answer.normed : answer.undivided;
}

export function TermChart({ answer, norm, width, drag }: Props) {
  const { n_positions: length } = useExplorer().bundle.model;
  const curves = curvesOf(answer, norm);
  const { kernel } = answer;
  return (
    <LineChart
      curves={curves}
      xRange={kernel ? [kernel.first, kernel.first + kernel.values.length - 1] : [0, length - 1]}
      xName={kernel ? "offset i − j" : "key position j"}
      yName="score"
      label={`L0H${answer.head}, from query position ${answer.query}: ${curves.map(range).join("; ")}`}
      width={width}
      marked={kernel ? null : answer.query}
      markName={`query ${answer.query}`}
      drag={drag}
    />
  );
}

export function AttentionChart({ answer, norm, width, drag }: Props) {
  const { n_positions: length } = useExplorer().bundle.model;
  const { first, attention } = chosen(answer, norm);
  const [, most] = extent(attention);
  return (
    <LineChart
      curves={[{ name: "attention", kind: "sum", first, values: attention }]}
      xRange={[0, length - 1]}
      xName="key position j"
      yName="attention"
      label={`L0H${answer.head}: attention by position alone from query position ${answer.query}, at most ${share(most)}`}
      width={width}
      height={200}
      fromZero
      marked={answer.query}
      markName={`query ${answer.query}`}
      drag={drag}
    />
  );
}

function range(curve: Curve): string {
  const [low, high] = extent(curve.values);
  return `${curve.name} from ${fixed(low)} to ${fixed(high)}`;
}
