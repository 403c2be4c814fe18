/** An error with a message for the user: what is wrong and what to do. */
export class Problem extends Error {}

export function sentenceOf(error: unknown): string {
  if (error instanceof Problem) return error.message;
  return `Unexpected error: ${error instanceof Error ? error.message : String(error)}`;
}
