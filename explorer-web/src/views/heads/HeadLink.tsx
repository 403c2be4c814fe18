/** A link to a head in another view. */

import { headName } from "../../parts/HeadPicker";
import { addressAfter, change } from "../../state/store";

export function HeadLink({ head, view, label }: { head: number; view: "token" | "text" | "positions"; label: string }) {
  const changed = { view, heads: [head] };
  const go = (event: MouseEvent) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    change(changed, true);
  };
  return (
    <a
      href={addressAfter(changed)}
      onClick={go}
      aria-label={label === view ? `${headName(head)} in ${view}` : undefined}
    >
      {label}
    </a>
  );
}
