import { defineConfig } from "vitest/config";

// File names without hashes, so that what is built can be compared and committed; relative addresses, so that the
// page works under any path.
export default defineConfig({
  base: "./",
  build: {
    outDir: "../src/detoklens/explorer/page",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    rolldownOptions: {
      output: {
        entryFileNames: "assets/[name].js",
        chunkFileNames: "assets/[name].js",
        assetFileNames: "assets/[name][extname]",
      },
    },
  },
  worker: {
    format: "es",
    rolldownOptions: { output: { entryFileNames: "assets/[name].js", chunkFileNames: "assets/[name].js" } },
  },
  test: { include: ["tests/**/*.test.ts"] },
});
