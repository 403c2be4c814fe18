/** Choose one head, or several: each press adds or removes one. */

import { useState } from "preact/hooks";
import { change, state } from "../state/store";
import { useExplorer } from "./hooks";

export const headName = (head: number) => `L0H${head}`;

export function HeadPicker({ most = 1 }: { most?: number }) {
  const { n_heads: count } = useExplorer().bundle.model;
  const { heads } = state.value;
  const [wantsMore, setWantsMore] = useState(false);
  const several = most > 1;
  const shown = heads.slice(0, most);
  const adding = several && (wantsMore || shown.length > 1);
  const press = (head: number, add: boolean) => change({ heads: several && add ? toggled(shown, head, most) : [head] }, true);
  return (
    <fieldset class="heads">
      <legend>Head{adding ? `s (up to ${most})` : ""}</legend>
      <div class="row">
        {Array.from({ length: count }, (_, head) => (
          <button
            type="button"
            key={head}
            aria-pressed={shown.includes(head)}
            onClick={(event) => press(head, adding || event.ctrlKey || event.metaKey || event.shiftKey)}
          >
            <span class="unseen">L0H</span>
            {head}
          </button>
        ))}
        {several && count > 1 && (
          <label class="switch">
            <input
              type="checkbox"
              checked={adding}
              onChange={(event) => {
                setWantsMore(event.currentTarget.checked);
                if (!event.currentTarget.checked) change({ heads: heads.slice(0, 1) }, true);
              }}
            />
            {most === 2 ? "compare two" : "several"}
          </label>
        )}
      </div>
    </fieldset>
  );
}

/** Add or remove a head; at least one stays, and the first is dropped if there are too many. */
export function toggled(heads: number[], head: number, most: number): number[] {
  if (!heads.includes(head)) return [...heads, head].slice(-most);
  return heads.length > 1 ? heads.filter((each) => each !== head) : heads;
}
