/** Light or dark: the system's choice until the user chooses; stored if possible. */

import { signal } from "@preact/signals";

export type Scheme = "light" | "dark";
const KEPT_AS = "detoklens-scheme";
const system = matchMedia("(prefers-color-scheme: dark)");

export const scheme = signal<Scheme>(kept() ?? (system.matches ? "dark" : "light"));

export function startScheme(): void {
  if (kept()) apply();
  system.addEventListener("change", () => {
    if (!document.documentElement.dataset.scheme) scheme.value = system.matches ? "dark" : "light";
  });
}

export function toggleScheme(): void {
  scheme.value = scheme.value === "dark" ? "light" : "dark";
  apply();
  try {
    localStorage.setItem(KEPT_AS, scheme.value);
  } catch {
    return; // no storage in a notebook's frame or a private window
  }
}

function apply(): void {
  document.documentElement.dataset.scheme = scheme.value;
}

function kept(): Scheme | null {
  try {
    const found = localStorage.getItem(KEPT_AS);
    return found === "light" || found === "dark" ? found : null;
  } catch {
    return null;
  }
}
