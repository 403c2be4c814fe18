/** A sentence for the person at the page: what is wrong and what to do. */
export class Problem extends Error {}

export function sentenceOf(error: unknown): string {
  if (error instanceof Problem) return error.message;
  return `Something in this page went wrong: ${error instanceof Error ? error.message : String(error)}`;
}
