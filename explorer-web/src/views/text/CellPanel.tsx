/** One cell of the matrix: query, key, attention, and the terms of the score. */

import type { TermDescription } from "../../data/contract";
import { TokenText } from "../../parts/TokenText";
import { useExplorer, useWidth } from "../../parts/hooks";
import { share } from "../../parts/numbers";
import type { Seen } from "./answer";
import { Waterfall } from "./Waterfall";

interface Props {
  seen: Seen;
  terms: TermDescription[];
  cell: [number, number];
}

export function CellPanel({ seen, terms, cell }: Props) {
  const [holder, width] = useWidth<HTMLDivElement>();
  const { sight } = useExplorer();
  const [query, key] = cell;
  const place = query * seen.ids.length + key;
  const [now, whole] = [seen.attention[place], seen.whole[place]];
  return (
    <aside class="panel" aria-label="Selected cell">
      <p class="pair" role="status">
        <TokenText id={seen.ids[query]} /> <span class="soft">({query}) attends to</span>{" "}
        <TokenText id={seen.ids[key]} /> <span class="soft">({key})</span>
      </p>
      <p class="amount">
        <strong>{share(now)}</strong>{" "}
        <span class="soft">of its attention{seen.off.length > 0 && `; ${share(whole)} with all terms`}</span>
      </p>
      <div ref={holder}>{width > 0 && <Waterfall seen={seen} terms={terms} cell={cell} width={width} />}</div>
      <p class="note">
        The terms add up to the score. Attention is the softmax of score × {Number(sight.attentionScale.toPrecision(4))}
        {sight.softcap !== null && `, capped at ±${sight.softcap},`} over the keys that the query can attend to.
        {sight.window !== null && ` The window has ${sight.window} keys, including the query itself.`}
      </p>
    </aside>
  );
}
