/** The model's tokenizer in a worker: loading a large one takes seconds. */

import { Tokenizer } from "@huggingface/tokenizers";

export interface Asked {
  number: number;
  file?: object;
  text?: string;
  special?: boolean;
}

export interface Answered {
  number: number;
  ids?: number[];
  failed?: string;
}

let tokenizer: Tokenizer | null = null;

function answer(asked: Asked): Answered {
  try {
    if (asked.file) tokenizer = new Tokenizer(asked.file, {});
    if (asked.text === undefined) return { number: asked.number, ids: [] };
    if (!tokenizer) throw new Error("no tokenizer was read");
    return { number: asked.number, ids: tokenizer.encode(asked.text, { add_special_tokens: asked.special }).ids };
  } catch (error) {
    return { number: asked.number, failed: error instanceof Error ? error.message : String(error) };
  }
}

self.onmessage = (event: MessageEvent<Asked>) => {
  (self as unknown as Worker).postMessage(answer(event.data));
};
