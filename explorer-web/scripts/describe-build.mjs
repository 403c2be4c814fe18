// After a build: the licences of what was built in, and built.json, which says from which sources which files came.

import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const page = join(root, "..", "src", "detoklens", "explorer", "page");
const sources = [
  "index.html",
  "package.json",
  "package-lock.json",
  "tsconfig.json",
  "vite.config.ts",
  "src",
  "public",
  "scripts",
];
const libraries = ["@huggingface/tokenizers", "@preact/signals", "@preact/signals-core", "preact"];

function filesBelow(path) {
  if (!existsSync(path)) return [];
  if (!statSync(path).isDirectory()) return [path];
  return readdirSync(path).flatMap((name) => filesBelow(join(path, name)));
}

const named = (base) => (path) => relative(base, path).split(sep).join("/");
const byBytes = (one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other));
const digestOf = (path) => createHash("sha256").update(readFileSync(path)).digest("hex");

function sourcesDigest() {
  const digest = createHash("sha256");
  const files = sources
    .flatMap((name) => filesBelow(join(root, name)))
    .map(named(root))
    .sort(byBytes);
  for (const file of files)
    digest
      .update(file)
      .update("\0")
      .update(readFileSync(join(root, file)))
      .update("\0");
  return digest.digest("hex");
}

function licences() {
  const texts = libraries.map((name) => {
    const folder = join(root, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    return `${name} ${version} (${license})\n\n${readFileSync(join(folder, "LICENSE"), "utf8").trim()}\n`;
  });
  return `The page's script contains these libraries.\n\n${texts.join(`\n${"-".repeat(80)}\n\n`)}`;
}

writeFileSync(join(page, "licences.txt"), licences());
const files = filesBelow(page)
  .map(named(page))
  .filter((file) => file !== "built.json")
  .sort(byBytes);
const digests = Object.fromEntries(files.map((file) => [file, digestOf(join(page, file))]));
writeFileSync(join(page, "built.json"), `${JSON.stringify({ sources: sourcesDigest(), files: digests }, null, 1)}\n`);
