/** Offer a file for download. */
export function download(name: string, type: string, content: string): void {
  const address = URL.createObjectURL(new Blob([content], { type: `${type};charset=utf-8` }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** A file name that includes the model's name. */
export function fileName(...parts: (string | number)[]): string {
  return parts
    .map((part) => String(part).replace(/[^\w.-]+/g, "-"))
    .join("-")
    .replace(/^[-.]+/, "");
}
