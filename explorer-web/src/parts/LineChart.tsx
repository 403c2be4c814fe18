/** Curves over an integer axis, with a position that can be dragged. */

import { useRef } from "preact/hooks";
import { extent } from "../math/histogram";
import { Axes } from "./Axes";
import { linear, padded, ticks, type Scale } from "./numbers";

export interface Curve {
  name: string;
  kind: string; // of line: a class of the style sheet
  first: number; // where the first value stands
  values: ArrayLike<number>;
}

export interface ChartProps {
  curves: Curve[];
  xRange: [number, number];
  xName: string;
  yName: string;
  label: string; // for those who do not see it
  width: number;
  height?: number;
  fromZero?: boolean;
  marked?: number | null; // a position on the x axis
  markName?: string;
  drag?: (position: number) => void;
}

export function LineChart(props: ChartProps) {
  const {
    curves,
    xRange,
    xName,
    yName,
    label,
    width,
    height = 240,
    fromZero = false,
    marked = null,
    markName,
    drag,
  } = props;
  const svg = useRef<SVGSVGElement>(null);
  const box = { left: 48, right: width - 8, top: 22, bottom: height - 38 };
  const x = linear(xRange, [box.left, box.right]);
  const [low, high] = extent(curves.flatMap((curve) => extent(curve.values)).filter(Number.isFinite));
  const y = linear(padded([fromZero ? 0 : low, high]), [box.bottom, box.top]);
  const [bottom, top] = [y.invert(box.bottom), y.invert(box.top)];
  const move = (event: PointerEvent) => {
    if (!drag || !svg.current || !(event.buttons & 1)) return;
    const place = Math.round(x.invert(event.clientX - svg.current.getBoundingClientRect().left));
    drag(Math.min(xRange[1], Math.max(xRange[0], place)));
  };
  const grab = (event: PointerEvent) => {
    if (!drag) return;
    svg.current?.setPointerCapture?.(event.pointerId);
    move(event);
  };
  return (
    <svg
      ref={svg}
      class={`chart ${drag ? "draggable" : ""}`}
      role="img"
      aria-label={label}
      width={width}
      height={height}
      onPointerDown={grab}
      onPointerMove={move}
    >
      <Axes
        {...box}
        x={x}
        y={y}
        xTicks={ticks(...xRange, Math.max(3, width / 110)).filter(Number.isInteger)}
        yTicks={ticks(bottom, top, height / 55)}
        xName={xName}
        yName={yName}
      />
      {bottom < 0 && top > 0 && <line class="zero" x1={box.left} x2={box.right} y1={y(0)} y2={y(0)} />}
      {curves.map((curve) => (
        <path key={curve.name} class={`curve ${curve.kind}`} d={pathOf(curve, x, y)} />
      ))}
      {marked !== null && (
        <g class="position" transform={`translate(${x(marked)} 0)`}>
          <line y1={box.top} y2={box.bottom} />
          <circle cx={0} cy={box.bottom} r={6} />
          <text
            x={x(marked) > width / 2 ? -8 : 8}
            y={box.top + 8}
            text-anchor={x(marked) > width / 2 ? "end" : "start"}
          >
            {markName}
          </text>
        </g>
      )}
    </svg>
  );
}

/** A line through all values; values that share a pixel become their minimum and maximum. */
function pathOf(curve: Curve, x: Scale, y: Scale): string {
  const length = curve.values.length;
  const pixels = Math.abs(x(curve.first + length) - x(curve.first));
  const bucket = Math.max(1, Math.floor((2 * length) / Math.max(1, pixels) / 2));
  const points: string[] = [];
  const add = (place: number) =>
    points.push(`${x(curve.first + place).toFixed(1)} ${y(curve.values[place]).toFixed(1)}`);
  for (let begin = 0; begin < length; begin += bucket) {
    if (bucket === 1) add(begin);
    else for (const place of endsOf(curve.values, begin, Math.min(length, begin + bucket))) add(place);
  }
  return length === 1 ? `M${points[0]}h0.1` : `M${points.join("L")}`;
}

/** Indices of the minimum and maximum, in order. */
function endsOf(values: ArrayLike<number>, begin: number, end: number): number[] {
  let [low, high] = [begin, begin];
  for (let place = begin; place < end; place++) {
    if (values[place] < values[low]) low = place;
    if (values[place] > values[high]) high = place;
  }
  return low < high ? [low, high] : [high, low];
}

/** The legend of the curves. */
export function CurveNames({ curves }: { curves: { name: string; kind: string }[] }) {
  return (
    <ul class="names" aria-label="Curves">
      {curves.map(({ name, kind }) => (
        <li key={name}>
          <svg width={26} height={10} aria-hidden="true">
            <path class={`curve ${kind}`} d="M1 5H25" />
          </svg>
          {name}
        </li>
      ))}
    </ul>
  );
}
