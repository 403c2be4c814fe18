/** The links that two panels give the most different attention. */

import { headName } from "../../parts/HeadPicker";
import { TokenText } from "../../parts/TokenText";
import { share, signed } from "../../parts/numbers";
import { differences, type Seen } from "./answer";

export function Differences({ one, other }: { one: Seen; other: Seen }) {
  const found = differences(one, other);
  const isSameText = one.ids.join() === other.ids.join();
  const names = isSameText ? [headName(one.head), headName(other.head)] : ["first", "second"];
  if (!found.length) return <p class="note">No pair of tokens occurs in both texts in this order.</p>;
  return (
    <div class="scroll" role="region" aria-label="Largest differences" tabindex={0}>
      <table class="differences">
        <caption>
          Largest differences in attention{isSameText ? "" : ", over the pairs of tokens that both texts have"}
        </caption>
        <thead>
          <tr>
            <th scope="col">query</th>
            <th scope="col">key</th>
            {[...names, "difference"].map((name) => (
              <th key={name} scope="col" class="number">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {found.map(({ query, key, cells, shares }) => (
            <tr key={cells.join()}>
              <td>
                <TokenText id={query} /> <span class="soft">({cells[0][0]})</span>
              </td>
              <td>
                <TokenText id={key} /> <span class="soft">({cells[0][1]})</span>
              </td>
              <td class="number">{share(shares[0])}</td>
              <td class="number">{share(shares[1])}</td>
              <td class="number">{signed(shares[1] - shares[0], 3)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
