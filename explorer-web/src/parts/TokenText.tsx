/** A token as it is shown everywhere: its own direction of writing, spaces visible, only ever as text. */

import { useExplorer } from "./hooks";

export function TokenText({ id }: { id: number }) {
  return <bdi class="token">{useExplorer().vocabulary.shown(id)}</bdi>;
}

/** Key and query as one text with its seam. */
export function Joined({ sides }: { sides: [number, number] }) {
  return <bdi class="token">{useExplorer().vocabulary.joinedShown(...sides)}</bdi>;
}
