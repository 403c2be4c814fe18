/** Ranked partners with joined text, count and score; each links to its own partners. */

import { countShown } from "../../data/counts";
import { headName } from "../../parts/HeadPicker";
import { Joined, TokenText } from "../../parts/TokenText";
import { useExplorer } from "../../parts/hooks";
import { fixed } from "../../parts/numbers";
import { addressAfter, change } from "../../state/store";
import { described, sidesOf, type Partners } from "./partners";

interface Props {
  title: string;
  kind: "positive" | "negative";
  found: Partners;
  ids: number[];
  counts: Map<number, number> | null;
  point: (id: number | null) => void;
}

export function PartnerList({ title, kind, found, ids, counts, point }: Props) {
  const explorer = useExplorer();
  const hasCounts = explorer.counts !== null;
  const hasTexts = explorer.vocabulary.hasTexts;
  return (
    <div class="scroll" role="region" aria-label={`${headName(found.question.head)}: ${title}`} tabindex={0}>
      <table class={`partners ${kind}`}>
        <caption>{title}</caption>
        <thead>
          <tr>
            <th scope="col" class="number">
              rank
            </th>
            <th scope="col">{found.question.way === "looks" ? "key" : "query"}</th>
            {hasTexts && <th scope="col">joined</th>}
            {hasTexts && (
              <th scope="col" title="whether the joined text is itself a token">
                token?
              </th>
            )}
            <th scope="col" class={`number ${found.ranked === found.plain ? "by" : ""}`}>
              Tᵉᵉ
            </th>
            {found.centred && (
              <th
                scope="col"
                class={`number ${found.ranked === found.centred ? "by" : ""}`}
                title="minus each key's mean over all query tokens"
              >
                centred
              </th>
            )}
            {hasCounts && (
              <th scope="col" class="number" title="how often the query follows the key in the corpus">
                count
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {ids.map((id, place) => (
            <Row key={place} id={id} rank={place + 1} found={found} counts={counts} point={point} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row({
  id,
  rank,
  found,
  counts,
  point,
}: Pick<Props, "found" | "counts" | "point"> & { id: number; rank: number }) {
  const explorer = useExplorer();
  const partner = described(explorer, found, counts, id);
  const hasTexts = explorer.vocabulary.hasTexts;
  const sides = sidesOf(found.question.way, found.question.token, id);
  return (
    <tr
      onMouseEnter={() => point(id)}
      onMouseLeave={() => point(null)}
      onFocusIn={() => point(id)}
      onFocusOut={() => point(null)}
    >
      <td class="number soft">{rank}</td>
      <td>
        <TokenLink id={id} />
      </td>
      {hasTexts && (
        <td>
          <Joined sides={sides} />
        </td>
      )}
      {hasTexts && (
        <td>
          {partner.is_token === null ? <span class="soft">no</span> : <TokenLink id={partner.is_token} label="yes" />}
        </td>
      )}
      <td class="number">{fixed(found.plain[id])}</td>
      {found.centred && <td class="number">{fixed(found.centred[id])}</td>}
      {explorer.counts && <td class="number">{counts ? countShown(partner) : "…"}</td>}
    </tr>
  );
}

/** A link to another token. */
export function TokenLink({ id, label }: { id: number; label?: string }) {
  const { vocabulary } = useExplorer();
  const go = (event: MouseEvent) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    change({ token: id }, true);
  };
  const named = label ? `${label}, the token ${vocabulary.shown(id)}` : undefined;
  return (
    <a href={addressAfter({ token: id })} onClick={go} aria-label={named} title={`token #${id}`}>
      {label ?? <TokenText id={id} />}
    </a>
  );
}
