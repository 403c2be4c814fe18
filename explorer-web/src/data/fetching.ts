/** Files of the bundle, fetched from the page's own folder only. */

import { FORMAT, KIND, type Bundle } from "./contract";
import { Problem } from "./problem";

const TRY_AGAIN = "Recreate the bundle with detoklens explore, or check that its server is running.";

async function asked(file: string): Promise<Response> {
  try {
    return await fetch(new URL(file, document.baseURI), { credentials: "same-origin" });
  } catch {
    throw new Problem(`The file ${file} can't be read. ${TRY_AGAIN}`);
  }
}

async function fetched(file: string): Promise<Response> {
  const answer = await asked(file);
  if (!answer.ok) throw new Problem(`The file ${file} is missing (${answer.status}). ${TRY_AGAIN}`);
  return answer;
}

export async function fetchJson<Content>(file: string): Promise<Content> {
  return contentOf(file, await fetched(file));
}

/** Poll for a file that is still being computed. */
export async function fetchPending<Content>(file: string, milliseconds: number): Promise<Content> {
  for (;;) {
    const answer = await asked(file);
    if (answer.ok) return contentOf(file, answer);
    await new Promise((resolve) => setTimeout(resolve, milliseconds));
  }
}

async function contentOf<Content>(file: string, answer: Response): Promise<Content> {
  try {
    return (await answer.json()) as Content;
  } catch {
    throw new Problem(`The file ${file} is not valid JSON. ${TRY_AGAIN}`);
  }
}

export async function fetchBytes(file: string, expected: number | null = null): Promise<ArrayBuffer> {
  const bytes = await (await fetched(file)).arrayBuffer();
  if (expected !== null && bytes.byteLength !== expected) {
    throw new Problem(`The file ${file} has ${bytes.byteLength} bytes instead of ${expected}. ${TRY_AGAIN}`);
  }
  return bytes;
}

/** Read bundle.json; refuse other kinds and formats. */
export async function fetchBundle(): Promise<Bundle> {
  const bundle = await fetchJson<Bundle>("bundle.json");
  if (bundle?.kind !== KIND) throw new Problem(`bundle.json does not describe a ${KIND}. ${TRY_AGAIN}`);
  if (bundle.format !== FORMAT) {
    throw new Problem(
      `This bundle has format ${bundle.format} and this page reads format ${FORMAT}: they were made by different ` +
        "versions of detoklens. Recreate the bundle with detoklens explore.",
    );
  }
  return bundle;
}
