/** Tables as CSV, as the package writes them, with text escaped that a spreadsheet would run as a formula. */

export type CsvValue = string | number | boolean | null;

const FORMULA = /^'*[=+\-@\t\r\n＝＋－＠]/;

export function csvText(columns: string[], rows: CsvValue[][]): string {
  return [columns, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

function cell(value: CsvValue): string {
  if (value === null || (typeof value === "number" && Number.isNaN(value))) return "";
  if (typeof value !== "string") return String(value);
  const safe = FORMULA.test(value) ? `'${value}` : value;
  return safe === "" || /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
