import { expect, test } from "vitest";
import { readable, shown, Vocabulary } from "../src/data/vocabulary";

const file = {
  texts: [" mag", "ic", " magic", "<script>", "\\xc3", "\\xa9", "é", "Mag", "\u202e", "a\u0000b", "mag"],
  bytes: { "4": "c3", "5": "a9" },
  special: [],
  continuing_prefix: "",
};
const vocabulary = new Vocabulary(file.texts.length, file);

test("what can't be seen is shown as an escape", () => {
  expect(shown(" a\n\t\u0007\u200b\u202e\u{e0001}")).toBe("␣a\\n\\t\\x07\\u200b\\u202e\\U000e0001");
  expect(shown("x".repeat(41))).toBe(`${"x".repeat(40)}…`);
});

test("two tokens as one text, with their seam, and whether it is a token", () => {
  expect(vocabulary.joined(0, 1)).toBe(" magic");
  expect(vocabulary.joinedShown(0, 1)).toBe("␣mag·ic");
  expect(vocabulary.isToken(0, 1)).toBe(2);
  expect(vocabulary.isToken(1, 0)).toBeNull();
});

test("bytes are joined before they are read", () => {
  expect(vocabulary.joined(4, 5)).toBe("é");
  expect(vocabulary.isToken(4, 5)).toBe(6);
  expect(readable([0x41, 0xe2, 0x82, 0x42, 0xc3, 0xa9])).toBe("A\\xe2\\x82Bé");
});

test("the mark of a going-on piece is taken off", () => {
  const marked = new Vocabulary(3, {
    ...file,
    texts: ["play", "##ing", "playing"],
    bytes: {},
    continuing_prefix: "##",
  });
  expect(marked.joined(0, 1)).toBe("playing");
  expect(marked.isToken(0, 1)).toBe(2);
});

test("search: the text itself first, then those that begin so, then those that hold it", () => {
  expect(vocabulary.search("mag", 9)).toEqual({ ids: [10, 0, 7, 2], total: 4 });
  expect(vocabulary.search("␣mag", 9).ids).toEqual([0, 2]);
  expect(vocabulary.search("mag", 1)).toEqual({ ids: [10], total: 4 });
  expect(vocabulary.search("#3", 9).ids).toEqual([3]);
  expect(vocabulary.search("#99", 9).ids).toEqual([]);
});

test("without a tokenizer tokens are ids", () => {
  const bare = new Vocabulary(5, null);
  expect(bare.text(4)).toBe("<id 4>");
  expect(bare.search("4", 9).ids).toEqual([4]);
  expect(bare.isToken(1, 2)).toBeNull();
});
