/** The text with each token coloured by the attention it gets from the selected query. */

import { useLayoutEffect, useRef } from "preact/hooks";
import { css, inkOn, shareColour } from "../../parts/colours";
import { useExplorer } from "../../parts/hooks";
import { share } from "../../parts/numbers";
import { scheme } from "../../state/scheme";
import { mostAttended, type Seen } from "./answer";

interface Props {
  seen: Seen;
  query: number;
  choose: (cell: [number, number]) => void;
}

export function ReadingLine({ seen, query, choose }: Props) {
  const { vocabulary } = useExplorer();
  const length = seen.ids.length;
  const line = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const [holder, chosen] = [line.current, line.current?.children[query] as HTMLElement | undefined];
    if (!holder || !chosen || holder.scrollHeight <= holder.clientHeight) return;
    const top = chosen.offsetTop - holder.offsetTop;
    if (top < holder.scrollTop || top + chosen.offsetHeight > holder.scrollTop + holder.clientHeight)
      holder.scrollTop = top - 40;
  }, [query, seen.ids]);
  return (
    <div ref={line} class="reading" role="group" aria-label="Tokens of the text; select one to see what it attends to">
      {seen.ids.map((id, place) => {
        const attention = seen.attention[query * length + place];
        const colour = shareColour(attention, scheme.value);
        return (
          <button
            type="button"
            key={place}
            aria-pressed={place === query}
            tabindex={place === query ? 0 : -1}
            title={`${place}: attention ${share(attention)}`}
            style={{ background: css(colour), color: inkOn(colour) }}
            onClick={() => choose([place, mostAttended(seen, place)])}
            onKeyDown={(event) => {
              const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
              const next = place + (step ?? 0);
              if (!step || next < 0 || next >= length) return;
              event.preventDefault();
              choose([next, mostAttended(seen, next)]);
              (event.currentTarget.parentElement?.children[next] as HTMLElement | undefined)?.focus();
            }}
          >
            <bdi class="token">{vocabulary.shown(id)}</bdi>
          </button>
        );
      })}
    </div>
  );
}
