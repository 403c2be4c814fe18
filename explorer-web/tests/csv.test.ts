import { expect, test } from "vitest";
import { csvText } from "../src/exports/csv";

test("no text that a spreadsheet would run; numbers as they are", () => {
  const rows = [
    ["=1+1", -2.5, null],
    ["'@x", true, 'a,"b"'],
    ["＝x", NaN, "\tx"],
    ["plain", 0, ""],
  ];
  expect(csvText(["text", "number", "other"], rows)).toBe(
    'text,number,other\n\'=1+1,-2.5,\n\'\'@x,true,"a,""b"""\n\'＝x,,\'\tx\nplain,0,""\n',
  );
});
