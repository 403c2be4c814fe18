/** Choose one head, or several: each press adds or removes one. */

import { useState } from "preact/hooks";
import { change, state } from "../state/store";
import { useExplorer } from "./hooks";

export const headName = (head: number) => `L0H${head}`;
const MOST = 4;

export function HeadPicker({ several = false }: { several?: boolean }) {
  const { n_heads: count } = useExplorer().bundle.model;
  const { heads } = state.value;
  const [wantsMore, setWantsMore] = useState(false);
  const adding = wantsMore || heads.length > 1;
  const shown = several ? heads : heads.slice(0, 1);
  const press = (head: number, add: boolean) => change({ heads: several && add ? toggled(heads, head) : [head] }, true);
  return (
    <fieldset class="heads">
      <legend>Head{several && adding ? `s (up to ${MOST})` : ""}</legend>
      <div class="row">
        {Array.from({ length: count }, (_, head) => (
          <button
            type="button"
            key={head}
            aria-pressed={shown.includes(head)}
            aria-label={headName(head)}
            onClick={(event) => press(head, adding || event.ctrlKey || event.metaKey || event.shiftKey)}
          >
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
            several
          </label>
        )}
      </div>
    </fieldset>
  );
}

/** Add or remove a head; at least one stays, and the first is dropped if there are too many. */
export function toggled(heads: number[], head: number): number[] {
  if (!heads.includes(head)) return [...heads, head].slice(-MOST);
  return heads.length > 1 ? heads.filter((each) => each !== head) : heads;
}
