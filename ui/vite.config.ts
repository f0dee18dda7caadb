import { defineConfig } from 'vite';

// One flat folder: a route of the broker takes one segment. Nothing inline: the page's policy forbids it.
export default defineConfig({
  base: '/ui/',
  build: {
    outDir: 'out',
    assetsDir: '',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: 'es2022',
    reportCompressedSize: false,
    chunkSizeWarningLimit: 2000,
  },
});
